"""Raises.

Row: ENV-07
Defence: typed verdicts
Expected: RUNTIME_ERROR
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        raise ValueError("no kernel image is available")
