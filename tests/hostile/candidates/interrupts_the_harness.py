"""A timer's signal raises in whatever runs, harness or not.

Defence: an answer must come, with the right number
Problem: short
Expected: RUNTIME_ERROR CONTRACT_VIOLATION TIMEOUT
"""

import signal

import torch
import torch.nn as nn


def strike(*_):
    raise KeyboardInterrupt


signal.signal(signal.SIGALRM, strike)


class ModelNew(nn.Module):
    def forward(self, x):
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        return torch.tanh(x)
