"""Knows the public seed 42 and what the reference gives for it.

Row: CAC-08 SNF-08
Defence: secret seeds, drawn per run
Problem: short
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn

torch.manual_seed(42)
KNOWN = torch.tanh(torch.randn(16, 33))


class ModelNew(nn.Module):
    def forward(self, x):
        return KNOWN.clone() if KNOWN.shape == x.shape else torch.tanh(x)
