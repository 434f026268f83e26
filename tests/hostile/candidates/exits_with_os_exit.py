"""Ends the process with status 0.

Defence: end of the process is an answer of its own
Expected: RUNTIME_ERROR
"""

import os

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os._exit(0)
