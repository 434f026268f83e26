"""Integers that compare equal to the right floats.

Defence: exact types of elements
Problem: sign
Expected: INCORRECT_DTYPE
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.sign(x).to(torch.int32)
