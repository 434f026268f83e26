"""Blocks every signal and never ends.

Row: ENV-04
Defence: SIGKILL to the process and all it started
Problem: short
Expected: TIMEOUT
"""

import signal

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            pass
