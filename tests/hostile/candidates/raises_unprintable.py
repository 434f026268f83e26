"""Raises something that cannot be printed, and that would run code where it is unpickled.

Row: PAT-08
Defence: plain JSON, never pickle
Expected: RUNTIME_ERROR
"""

import os

import torch.nn as nn


class Nasty(Exception):
    """Breaks whoever handles it."""

    def __str__(self):
        raise RuntimeError("no text")

    def __reduce__(self):
        return (os.abort, ())


class ModelNew(nn.Module):
    def forward(self, x):
        raise Nasty()
