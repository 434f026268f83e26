"""Hands the input through where the reference drops half of it.

Row: DEG-07
Defence: one seed for both sides' generators
Problem: dropout
Expected: INCORRECT_NUMERICAL
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
