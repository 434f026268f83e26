"""Works in place on its input and returns a copy.

Expected: CONTRACT_VIOLATION
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.tanh_().clone()
