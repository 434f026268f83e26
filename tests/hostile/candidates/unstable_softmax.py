"""Leaves out the subtraction of the largest value.

Row: PRE-06
Defence: inputs of many scales
Problem: softmax
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x)
        return e / e.sum(1, keepdim=True)
