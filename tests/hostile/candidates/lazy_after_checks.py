"""An honest tensor while it is checked, a lazy one when it is timed.

Row: LAZ-03 SNF-01
Defence: exact types of outputs, in timed calls too
Problem: short
Expected: CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class Late(torch.Tensor):
    """Computes when it is copied."""


class ModelNew(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.tanh(x) if self.calls < 13 else torch.empty_like(x).as_subclass(Late)
