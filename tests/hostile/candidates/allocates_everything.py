"""Asks for 4 TiB.

Row: ENV-04
Defence: limit of memory
Expected: OUT_OF_MEMORY
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) + torch.empty(1 << 40)[0]
