"""A list where the reference gives a tensor.

Defence: exact nesting of outputs
Problem: short
Expected: INCORRECT_SHAPE
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return [torch.tanh(x)]
