"""Right but for one NaN with a payload.

Row: DEG-10
Defence: NaN and infinity must stand where the reference has them
Problem: short
Expected: INCORRECT_NUMERICAL
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        y.view(-1).view(torch.int32)[7] = 0x7FC0BEEF
        return y
