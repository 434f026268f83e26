"""Steals the judge's requests from the channel.

Defence: one answer with the right number for each request, in time
Problem: short
Expected: RUNTIME_ERROR CONTRACT_VIOLATION TIMEOUT
"""

import os
import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.started = False

    def forward(self, x):
        if not self.started:
            self.started = True
            threading.Thread(target=lambda: os.read(3, 1 << 16), daemon=True).start()
        return torch.tanh(x)
