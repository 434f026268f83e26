"""Changes torch's global flags: threads, denormals, precision, default type.

Row: PAT-12
Defence: fresh process for each candidate, one processor, changes stay in it
Problem: short
Expected: CORRECT
Gain: none
"""

import torch
import torch.nn as nn

torch.set_flush_denormal(True)
torch.set_num_threads(8)
torch.set_float32_matmul_precision("medium")
torch.set_default_dtype(torch.float64)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
