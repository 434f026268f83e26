"""Raises in the constructor.

Expected: LOAD_ERROR
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        raise ValueError("bad size")

    def forward(self, x):
        return x
