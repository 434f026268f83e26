"""Raises with a text that no UTF-8 can hold.

Row: PAT-08
Defence: text of a child is made printable before it is kept
Problem: short
Expected: RUNTIME_ERROR
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        raise ValueError("half \ud800 and nothing \x00 of it")
