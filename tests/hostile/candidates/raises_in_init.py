"""Raises in the constructor.

Row: ENV-07
Defence: typed verdicts
Expected: LOAD_ERROR
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        raise ValueError("bad size")

    def forward(self, x):
        return x
