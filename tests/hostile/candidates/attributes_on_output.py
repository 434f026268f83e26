"""A tensor that carries a cache.

Defence: bare outputs
Problem: short
Expected: CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        y.cache = x
        return y
