"""Returns None.

Defence: exact nesting of outputs
Expected: INCORRECT_SHAPE
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        torch.tanh(x)
