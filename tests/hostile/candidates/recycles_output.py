"""The same buffer for every answer: earlier answers change later.

Row: MEM-09
Defence: an output is held and read again after the next call
Expected: CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffer = torch.empty(512, 1024)

    def forward(self, x):
        torch.tanh(x, out=self.buffer)
        return self.buffer
