"""A vector of one element where the reference gives a number.

Defence: exact shapes
Problem: sum
Expected: INCORRECT_SHAPE
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.sum().reshape(1)
