"""Raises SystemExit(0).

Defence: leaving is an answer, never a proof
Expected: RUNTIME_ERROR
"""

import sys

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        sys.exit(0)
