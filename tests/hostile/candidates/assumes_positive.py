"""Relies on the inputs' range: positive, so relu does nothing.

Row: DEG-08
Defence: inputs of other distributions
Problem: relu
Expected: INCORRECT_NUMERICAL
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
