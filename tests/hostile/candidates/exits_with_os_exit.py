"""Ends the process with status 0.

Expected: RUNTIME_ERROR
"""

import os

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os._exit(0)
