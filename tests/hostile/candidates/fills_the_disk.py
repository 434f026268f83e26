"""Writes until the disk is full.

Row: ENV-04
Defence: limit of file sizes; the folder is removed
Problem: short
Expected: RUNTIME_ERROR TIMEOUT CORRECT
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        with open("fill", "wb") as out:
            for _ in range(40):
                out.write(bytes(10 << 20))
        return torch.tanh(x)
