"""Returns the last answer when the input is the same object of the same version.

Row: CAC-01
Defence: fresh values and objects for every timed call
Problem: short
Expected: CORRECT
Gain: none
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.key = self.out = None

    def forward(self, x):
        key = (id(x), x._version)
        if key != self.key:
            self.key, self.out = key, torch.tanh(x)
        return self.out.clone()
