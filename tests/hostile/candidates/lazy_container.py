"""A tuple that computes its items when it is read, after the clock has stopped.

Row: LAZ-03
Defence: exact types of outputs and of what holds them
Problem: pair
Expected: CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class Late(tuple):
    """Right when somebody looks."""

    def __new__(cls, x):
        """Hold the input."""
        self = super().__new__(cls, (x, x))
        self.x = x
        return self

    def __iter__(self):
        """Work now."""
        return iter((torch.tanh(self.x), self.x + 1))


class ModelNew(nn.Module):
    def forward(self, x):
        return Late(x)
