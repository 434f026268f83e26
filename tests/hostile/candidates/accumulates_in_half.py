"""Adds long rows up in half precision.

Row: PRE-04
Defence: error against a double-precision reference
Problem: rows
Expected: INCORRECT_NUMERICAL
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.half().sum(1).float()
