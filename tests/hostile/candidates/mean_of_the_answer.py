"""One constant for every input, near what the outputs have in common.

Row: DEG-04
Defence: errors relative to the answer's spread over seeds
Problem: offset
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, 1000.0)
