"""A subclass that answers comparisons itself.

Row: LAZ-03
Defence: exact types of outputs
Expected: CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class Agreeable(torch.Tensor):
    """Every comparison is true."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("allclose", "equal", "isclose"):
            return True
        return super().__torch_function__(func, types, args, kwargs or {})


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x).as_subclass(Agreeable)
