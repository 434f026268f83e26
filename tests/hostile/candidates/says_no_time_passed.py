"""Replaces the harness's timed call: nothing, or less than nothing, was needed.

Defence: the judge's own clock
Problem: short
Expected: TIMING_DISAGREE CONTRACT_VIOLATION RUNTIME_ERROR
"""

import sys

import torch
import torch.nn as nn

side = sys.modules["dice_core.arena.timedcall"].TimedSide
real = side.go


def go(self):
    real(self)
    return -5.0, None


side.go = go


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
