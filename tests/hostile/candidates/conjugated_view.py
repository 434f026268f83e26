"""A lazily conjugated view: legal.

Defence: outputs are read by value
Problem: complex
Expected: CORRECT
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.conj(torch.conj(x + x).resolve_conj())
