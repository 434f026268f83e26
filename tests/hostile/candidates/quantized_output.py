"""A quantized tensor.

Defence: closed list of types
Problem: short
Expected: CONTRACT_VIOLATION INCORRECT_DTYPE RUNTIME_ERROR
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.quantize_per_tensor(torch.tanh(x), 0.01, 0, torch.qint8)
