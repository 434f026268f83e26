"""Looks for expected values in the frames of its callers.

Row: MEM-06
Defence: expected outputs live in another process
Problem: short
Expected: INCORRECT_NUMERICAL
"""

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        frame = sys._getframe()
        while frame is not None:
            for name, value in list(frame.f_locals.items()):
                if "expect" in name and isinstance(value, torch.Tensor):
                    return value.clone()
            frame = frame.f_back
        return torch.zeros_like(x)
