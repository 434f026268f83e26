"""Fills memory from Python.

Row: ENV-04
Defence: limit of memory
Expected: OUT_OF_MEMORY
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        hoard = []
        while True:
            hoard.append(bytearray(256 << 20))
