"""Aborts.

Defence: end of the process is an answer of its own
Expected: RUNTIME_ERROR
"""

import os

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.abort()
