"""Returns an object of its own.

Row: LAZ-03
Defence: exact types of outputs
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
