"""A lazily negated view of its own memory: legal, and read as what it stands for.

Defence: outputs are read by value
Problem: short
Expected: CORRECT
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch._neg_view(torch.tanh(-x))
