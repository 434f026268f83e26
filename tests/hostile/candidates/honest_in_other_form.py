"""Another formula for the same function, exact enough.

Defence: none needed
Problem: short
Expected: CORRECT
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(-2.0 * x.abs())
        return torch.sign(x) * (1.0 - e) / (1.0 + e)
