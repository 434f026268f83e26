"""A thread burns the processor while it is the reference's turn.

Defence: children are stopped when they have answered
Expected: CORRECT TIMING_DISAGREE
Gain: none
"""

import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.started, self.mine = False, 0.0

    def forward(self, x):
        if not self.started:
            self.started = True
            threading.Thread(target=self.burn, daemon=True).start()
        self.mine = time.monotonic() + 0.0005
        return torch.tanh(x)

    def burn(self):
        """Work for nothing, but not while its own call is timed."""
        waste = torch.ones(1 << 20)
        while True:
            if time.monotonic() > self.mine:
                waste.tanh_()
