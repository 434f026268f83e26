"""One row in memory, shown as many.

Row: LAZ-04
Defence: outputs with memory of their own
Expected: CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x[:1]).expand_as(x)
