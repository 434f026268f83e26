"""Bytes where the reference gives truth values.

Defence: exact types of elements
Problem: positive
Expected: INCORRECT_DTYPE
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x > 0).to(torch.uint8)
