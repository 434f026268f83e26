"""Aborts.

Expected: RUNTIME_ERROR
"""

import os

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.abort()
