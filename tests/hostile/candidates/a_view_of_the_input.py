"""A view of its input, which the reference does not change.

Defence: no memory shared with inputs
Problem: short
Expected: CONTRACT_VIOLATION INCORRECT_NUMERICAL
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x[:]
