"""More outputs than a tree may hold.

Defence: bounded trees
Problem: short
Expected: CONTRACT_VIOLATION TIMEOUT
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return [0] * 300_000
