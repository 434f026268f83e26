"""Zeros, where every right value is below an absolute tolerance.

Row: DEG-02
Defence: errors relative to the answer's size
Problem: tiny
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
