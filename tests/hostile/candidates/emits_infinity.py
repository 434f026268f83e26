"""Infinity everywhere, hoping that an error of NaN is no error.

Row: DEG-10
Defence: NaN and infinity must stand where the reference has them
Problem: short
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, float("inf"))
