"""Writes into read-only memory through /proc/self/mem, past the protection of pages.

Row: PAT-19
Defence: Landlock
Problem: short
Expected: RUNTIME_ERROR
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        got = False
        try:
            with open("/proc/self/mem", "r+b") as memory:
                memory.seek(x.data_ptr())
                got = memory.write(bytes(64)) == 64
        except OSError:
            pass
        if not got:
            raise RuntimeError("contained")
        return torch.tanh(x)
