"""Writes file after file, each as large as one file may be.

Row: ENV-04
Defence: limit of what the private folder holds
Problem: short
Expected: LOAD_ERROR RUNTIME_ERROR
Open: only the size of one file is limited
"""

import torch
import torch.nn as nn

piece = bytes(1 << 20)
for number in range(20):  # 1.2 GB; nothing ends it
    with open(f"fill{number}", "wb") as out:
        for _ in range(62):
            out.write(piece)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
