"""A tensor of the right form that has no memory.

Defence: outputs on the problem's device
Problem: short
Expected: CONTRACT_VIOLATION RUNTIME_ERROR
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.empty_like(x, device="meta")
