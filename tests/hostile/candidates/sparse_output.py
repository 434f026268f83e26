"""A sparse tensor.

Defence: dense outputs
Problem: short
Expected: CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x).to_sparse()
