"""Writes the last rows from a thread, a moment after it returned.

Row: STR-09
Defence: children are stopped when they have answered; poisoned memory
Expected: INCORRECT_NUMERICAL CONTRACT_VIOLATION TIMING_DISAGREE
"""

import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        y[:500] = torch.tanh(x[:500])
        threading.Timer(0.005, lambda: y[500:].copy_(torch.tanh(x[500:]))).start()
        return y
