"""Computes once, then returns its first answer for ever.

Row: STR-07
Defence: several seeds; timed calls are compared
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = None

    def forward(self, x):
        if self.first is None:
            self.first = torch.tanh(x)
        return self.first.clone()
