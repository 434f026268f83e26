"""Does the work on the weights in the constructor, before the judge sets them.

Row: CAC-10
Defence: state is copied by name after construction
Problem: weights
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(33))
        self.work = torch.tanh(self.weight.detach())

    def forward(self, x):
        return x + self.work
