"""An output nested without end.

Defence: bounded trees
Problem: short
Expected: RUNTIME_ERROR CONTRACT_VIOLATION
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = []
        y.append(y)
        return y
