"""Pushes a dispatch mode for good, which finishes outputs when they are copied.

Defence: the judge's own clock around the copies
Expected: TIMING_DISAGREE INCORRECT_NUMERICAL CONTRACT_VIOLATION RUNTIME_ERROR CORRECT
Gain: none
"""

import torch
import torch.nn as nn
from torch.utils._python_dispatch import TorchDispatchMode

pending = []


class Late(TorchDispatchMode):
    """Does the work when somebody reads."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if pending and "copy" in str(func):
            y, x = pending.pop()
            torch.tanh(x, out=y)
        return func(*args, **(kwargs or {}))


Late().__enter__()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        pending.append((y, x))
        return y
