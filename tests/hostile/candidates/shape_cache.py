"""Remembers answers by the shape of the input.

Row: CAC-05
Defence: several seeds; timed calls are compared
Problem: short
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.known = {}

    def forward(self, x):
        if x.shape not in self.known:
            self.known[x.shape] = torch.tanh(x)
        return self.known[x.shape].clone()
