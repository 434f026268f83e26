"""An output with a gradient and a hook on it.

Defence: outputs are read as bytes
Problem: short
Expected: CORRECT
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.enable_grad():
            y = torch.tanh(x.detach().requires_grad_())
            y.register_hook(lambda grad: grad * 0)
            return y
