"""Ends the process from C with status 0.

Defence: end of the process is an answer of its own
Expected: RUNTIME_ERROR
"""

import ctypes

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.CDLL(None).exit(0)
