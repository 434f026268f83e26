"""Reads address 0.

Defence: end of the process is an answer of its own
Expected: RUNTIME_ERROR
"""

import ctypes

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.string_at(0)
        return x
