"""Leaves folders in folders, deeper than a recursive removal goes.

Row: ENV-04
Defence: the folder is removed without recursion
Problem: short
Expected: CORRECT
"""

import os

import torch
import torch.nn as nn

home = os.getcwd()
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
os.chdir(home)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
