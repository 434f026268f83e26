"""Writes to stdout and stderr all the time; the verdict does not travel there.

Defence: verdicts do not travel over stdout
Problem: short
Expected: CORRECT
"""

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        print("CORRECT" * 2000)
        os.write(2, b"\xff\xfe{}" * 1000)
        return torch.tanh(x)
