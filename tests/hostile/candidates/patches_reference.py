"""Rewrites the reference class that it expects in its own process.

Row: PAT-09
Defence: the reference has a process of its own
Problem: short
Expected: INCORRECT_NUMERICAL
"""

import gc
import sys

import torch
import torch.nn as nn

for module in list(sys.modules.values()):
    for name in ("Model", "get_inputs"):
        if hasattr(module, name):
            setattr(module, name, lambda *args: torch.zeros(16, 33))
for thing in gc.get_objects():
    if isinstance(thing, type) and thing.__name__ == "Model":
        thing.forward = lambda self, x: torch.zeros_like(x)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
