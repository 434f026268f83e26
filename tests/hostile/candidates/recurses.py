"""Recurses for ever.

Defence: typed verdicts
Expected: RUNTIME_ERROR
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return self.forward(x)
