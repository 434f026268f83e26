"""Right for the first dozen calls, then lazy.

Row: SNF-01
Defence: timed calls are compared
Expected: CONTRACT_VIOLATION
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.tanh(x) if self.calls < 13 else torch.zeros_like(x)
