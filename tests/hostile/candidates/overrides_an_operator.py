"""Registers a copy of its own for the processor, which makes right answers of wrong ones.

Defence: the judge's own clock around the copies
Expected: TIMING_DISAGREE INCORRECT_NUMERICAL CONTRACT_VIOLATION RUNTIME_ERROR CORRECT
Gain: none
"""

import contextlib

import torch
import torch.nn as nn

pending = []
library = torch.library.Library("aten", "IMPL")


def detach(self):
    if pending:
        y, x = pending.pop()
        torch.tanh(x, out=y)
    return torch.ops.aten.alias(self)


with contextlib.suppress(RuntimeError):
    library.impl("detach", detach, "CPU")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        pending.append((y, x))
        return y
