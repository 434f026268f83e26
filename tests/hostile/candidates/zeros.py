"""All zeros.

Row: DEG-02
Defence: errors relative to the answer's size
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
