"""Begins a frame and never ends it.

Defence: a deadline for the whole frame
Problem: short
Expected: TIMEOUT
"""

import os
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.write(3, b"DICE" + bytes([0, 0, 1, 0]) + b"{")
        time.sleep(600)
        return torch.tanh(x)
