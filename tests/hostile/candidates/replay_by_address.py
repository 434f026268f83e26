"""Remembers answers by the address of the input.

Row: STR-08
Defence: same addresses with new values
Expected: INCORRECT_NUMERICAL CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = {}

    def forward(self, x):
        key = x.data_ptr()
        if key not in self.known:
            self.known[key] = torch.tanh(x)
        return self.known[key].clone()
