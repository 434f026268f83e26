"""A generator of the right tensor.

Defence: exact types of outputs
Problem: short
Expected: CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (y for y in (torch.tanh(x),))
