"""Slows the clock that the harness in its own process reads.

Expected: TIMING_DISAGREE CORRECT
"""

import sys
import time

import torch
import torch.nn as nn

harness = sys.modules["dice_core.arena.timedcall"]
real, start = time.perf_counter_ns, time.perf_counter_ns()
harness._clock_ns = lambda: start + (real() - start) // 50


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
