"""A parameter instead of a tensor.

Defence: exact types of outputs
Problem: short
Expected: CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.Parameter(torch.tanh(x))
