"""Raises while it is imported.

Row: ENV-07
Defence: typed verdicts
Expected: LOAD_ERROR
"""

import torch.nn as nn

raise ImportError("no module named kernels")


class ModelNew(nn.Module):
    def forward(self, x):
        return x
