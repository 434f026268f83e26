"""Tells a time that is no number.

Defence: frames hold finite numbers only
Problem: short
Expected: RUNTIME_ERROR CONTRACT_VIOLATION TIMING_DISAGREE
"""

import sys

import torch
import torch.nn as nn

side = sys.modules["dice_core.arena.timedcall"].TimedSide
real = side.go


def go(self):
    real(self)
    return float("nan"), None


side.go = go


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
