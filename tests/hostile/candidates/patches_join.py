"""Makes waiting a no-op, on threads and on devices.

Row: PAT-03
Defence: the judge's own clock; the device is joined through a function bound before
Problem: short
Expected: CORRECT
Gain: none
"""

import threading

import torch
import torch.nn as nn

threading.Thread.join = lambda self, timeout=None: None
torch.cuda.synchronize = lambda *args: None


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
