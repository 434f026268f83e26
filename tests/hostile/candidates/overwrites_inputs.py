"""Zeroes every mapping it finds, so that zeros become the right answer.

Row: MEM-04
Defence: inputs are mapped privately
Expected: INCORRECT_NUMERICAL CONTRACT_VIOLATION
"""

import contextlib
import gc
import mmap

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        for thing in gc.get_objects():
            if isinstance(thing, mmap.mmap):
                with contextlib.suppress(TypeError, ValueError):
                    thing[:] = bytes(len(thing))
        return torch.zeros_like(x)
