"""Does its work in the harness's copy step, after the clock has stopped.

Row: STR-09
Defence: the judge's own clock around the copies
Expected: TIMING_DISAGREE CONTRACT_VIOLATION CORRECT
Gain: none
"""

import sys

import torch
import torch.nn as nn

harness = sys.modules["dice_core.arena.timedcall"].TimedSide
pending = []
real_copy_out = harness.copy_out


def finish():
    while pending:
        y, x = pending.pop()
        torch.tanh(x, out=y)


def copy_out(self, *arguments):
    finish()
    return real_copy_out(self, *arguments)


harness.copy_out = copy_out
worker = sys.modules["dice_core.arena.worker"]
worker.output_faults = lambda *args: finish() or []


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        pending.append((y, x))
        return y
