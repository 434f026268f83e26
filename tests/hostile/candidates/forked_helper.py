"""Hands the work to a process of its own.

Row: STR-06
Defence: seccomp: no new processes
Expected: RUNTIME_ERROR
"""

import os
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        if os.fork() == 0:
            time.sleep(1)
            os._exit(0)
        return torch.tanh(x)
