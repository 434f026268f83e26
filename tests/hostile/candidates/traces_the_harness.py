"""Finishes its work from a trace function, when the harness begins to copy.

Defence: the judge's own clock around the copies
Expected: TIMING_DISAGREE INCORRECT_NUMERICAL CONTRACT_VIOLATION CORRECT
Gain: none
"""

import sys

import torch
import torch.nn as nn

pending = []


def watch(frame, event, argument):
    if pending and frame.f_code.co_name in ("collect", "_copy_out", "copy_out", "encode", "output_faults", "plain"):
        y, x = pending.pop()
        torch.tanh(x, out=y)


class ModelNew(nn.Module):
    def forward(self, x):
        sys.settrace(watch)
        y = torch.empty_like(x)
        pending.append((y, x))
        return y
