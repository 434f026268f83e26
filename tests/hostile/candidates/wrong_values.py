"""Wrong by a little more than rounding.

Defence: error against a double-precision reference
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 1.001
