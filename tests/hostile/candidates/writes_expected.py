"""Writes its own zeros over every region that it can map.

Row: MEM-07
Defence: the judge copies outputs away before it compares them
Problem: short
Expected: INCORRECT_NUMERICAL CONTRACT_VIOLATION
"""

import gc

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        for worker in gc.get_objects():
            if type(worker).__name__ == "_Worker":
                for region in worker._regions.values():
                    region.zero_()
        return torch.zeros_like(x)
