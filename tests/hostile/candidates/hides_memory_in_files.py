"""Writes into nameless files in memory, which no limit of the address space counts.

Row: ENV-04
Defence: limit of memory
Problem: short
Expected: OUT_OF_MEMORY RUNTIME_ERROR LOAD_ERROR
"""

import os

import torch
import torch.nn as nn

kept = []
piece = bytes(1 << 20)
for number in range(26):  # 1.6 GB in all; more would be possible
    kept.append(os.memfd_create(f"m{number}"))
    for _ in range(62):
        os.write(kept[-1], piece)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
