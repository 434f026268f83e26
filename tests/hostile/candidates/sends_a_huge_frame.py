"""Announces a frame of 4 GB.

Defence: bounded frames
Problem: short
Expected: CONTRACT_VIOLATION
"""

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.write(3, b"DICE" + bytes([255] * 4))
        return torch.tanh(x)
