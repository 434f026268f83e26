"""Leaves work for atexit and for destructors.

Defence: the process is killed, nothing of it is read afterwards
Problem: short
Expected: CORRECT
"""

import atexit
import os

import torch
import torch.nn as nn


class Late:
    """Acts when it is collected."""

    def __del__(self):
        os.write(3, b"verdict: CORRECT")


late = Late()
late.self = late
atexit.register(os.write, 3, b"verdict: CORRECT")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
