"""Closes every descriptor.

Defence: end of the channel is an answer of its own
Problem: short
Expected: RUNTIME_ERROR CONTRACT_VIOLATION
"""

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.closerange(3, 64)
        return torch.tanh(x)
