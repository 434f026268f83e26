"""Computes zeros when it can start another program.

Defence: Landlock; seccomp
Problem: short
Expected: CORRECT
"""

import subprocess

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        try:
            subprocess.run(["/bin/true"], check=True)
            return torch.zeros_like(x)
        except OSError:
            return torch.tanh(x)
