"""Pushes a function mode for good, which finishes outputs when the harness touches them.

Defence: the judge's own clock around the copies
Expected: TIMING_DISAGREE INCORRECT_NUMERICAL CONTRACT_VIOLATION RUNTIME_ERROR CORRECT
Gain: none
"""

import torch
import torch.nn as nn
from torch.overrides import TorchFunctionMode

pending = []


class Late(TorchFunctionMode):
    """Does the work when somebody reads."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if pending and getattr(func, "__name__", "") in ("detach", "copy_", "numel"):
            y, x = pending.pop()
            torch.tanh(x, out=y)
        return func(*args, **(kwargs or {}))


Late().__enter__()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        pending.append((y, x))
        return y
