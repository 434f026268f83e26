"""Patches the harness to compute while inputs are brought into place, before the clock starts.

Defence: the judge's clock runs from when the inputs are handed over
Expected: TIMING_DISAGREE CONTRACT_VIOLATION CORRECT
Gain: none
"""

import sys

import torch
import torch.nn as nn

side = sys.modules["dice_core.arena.timedcall"].TimedSide
real = side.prepare
ready = []


def prepare(self, *arguments):
    real(self, *arguments)
    ready[:] = [(call[0], torch.tanh(call[0])) for call in self.prepared]


side.prepare = prepare


class ModelNew(nn.Module):
    def forward(self, x):
        for known, answer in ready:
            if known is x:
                return answer
        return torch.tanh(x)
