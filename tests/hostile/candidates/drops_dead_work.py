"""Leaves out work whose result the reference does not use: a legal rewrite.

Row: DEG-06
Defence: none: it is legal, and the problem is to be flagged
Problem: dead
Expected: CORRECT
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
