"""Forks without end.

Row: ENV-04
Defence: seccomp: no new processes; limit of processes
Expected: RUNTIME_ERROR OUT_OF_MEMORY TIMEOUT
"""

import os
import time

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            if os.fork() == 0:
                time.sleep(600)
