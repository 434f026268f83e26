"""Answers that the device does not start, which would be nobody's fault.

Defence: only a worker that has not loaded a candidate yet may say so
Problem: short
Expected: RUNTIME_ERROR CONTRACT_VIOLATION
"""

import sys

import torch.nn as nn

failure = sys.modules["dice_core.arena.serving"].Failure


class ModelNew(nn.Module):
    def forward(self, x):
        raise failure("device", "no device here")
