"""One row in memory, shown as many.

Expected: CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x[:1]).expand_as(x)
