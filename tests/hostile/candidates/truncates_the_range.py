"""A polynomial that is right between -1 and 1 only.

Row: PRE-05
Defence: inputs of many scales
Problem: short
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.clamp(-1, 1)
        return torch.where(x.abs() <= 1, torch.tanh(y), torch.sign(x))
