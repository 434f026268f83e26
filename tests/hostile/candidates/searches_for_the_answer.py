"""Returns any tensor of the right shape that it can find in its process.

Row: MEM-05
Defence: expected outputs live in another process
Expected: INCORRECT_NUMERICAL
"""

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        for thing in gc.get_objects():
            if type(thing) is torch.Tensor and thing.shape == x.shape and thing.data_ptr() != x.data_ptr():
                return thing.clone()
        return torch.zeros_like(x)
