"""Double where the reference gives float.

Defence: exact types of elements
Expected: INCORRECT_DTYPE
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x).double()
