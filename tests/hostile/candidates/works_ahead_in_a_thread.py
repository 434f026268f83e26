"""A thread watches for prepared inputs and computes before the call comes.

Defence: children are stopped when they have answered
Expected: TIMING_DISAGREE CONTRACT_VIOLATION CORRECT INCORRECT_NUMERICAL
Gain: none
"""

import gc
import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.started, self.ready = False, []

    def forward(self, x):
        if not self.started:
            self.started = True
            threading.Thread(target=self.watch, daemon=True).start()
        for known, answer in list(self.ready):
            if known is x:
                return answer
        return torch.tanh(x)

    def watch(self):
        """Compute whatever the harness has prepared."""
        side = next(one for one in gc.get_objects() if type(one).__name__ == "TimedSide")
        while True:
            if side.prepared and not any(known is side.prepared[0][0] for known, _ in self.ready):
                self.ready = [(call[0], torch.tanh(call[0])) for call in list(side.prepared)]
            time.sleep(0.0002)
