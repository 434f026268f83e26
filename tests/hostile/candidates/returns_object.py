"""Returns an object of its own.

Expected: CONTRACT_VIOLATION
"""

import torch.nn as nn


class Answer:
    """Claims to be equal to everything."""

    def __eq__(self, other):
        return True


class ModelNew(nn.Module):
    def forward(self, x):
        return Answer()
