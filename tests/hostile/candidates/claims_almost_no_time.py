"""Patches the harness: every sample took the smallest number above zero, by which no time can be divided.

Row: PAT-02
Defence: times below a clock's step are impossible
Problem: short
Expected: TIMING_DISAGREE
"""

import dataclasses
import sys

import torch
import torch.nn as nn

side = sys.modules["dice_core.arena.timedcall"].TimedSide
take = side.run
side.run = lambda *arguments: [dataclasses.replace(one, host_us=5e-324) for one in take(*arguments)]


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
