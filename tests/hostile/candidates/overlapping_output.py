"""A view whose rows share memory.

Row: LAZ-04
Defence: outputs with memory of their own
Problem: short
Expected: CONTRACT_VIOLATION INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        return y.as_strided(y.shape, (1, 1))
