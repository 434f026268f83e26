"""Patches the harness: inputs are not copied, and the time saved so pays for a clock that runs slow.

Row: STR-09
Defence: both sides get their inputs before the judge's clock runs
Problem: row sums
Expected: TIMING_DISAGREE CORRECT CONTRACT_VIOLATION
Open: bringing inputs into place is inside the judge's clock
Gain: none
"""

import dataclasses
import sys

import torch.nn as nn

timed = sys.modules["dice_core.arena.timedcall"]
values = timed.values


def prepare(self, nodes, seed, poison, reserve):
    def view(node):
        return values.source_of(node, self._inputs, self._device)

    self.outputs = []
    self.prepared = [[view(item) for item in node["items"]] for node in nodes]


real_run = timed.TimedSide.run


def run(self, *arguments):
    self.prepare = lambda *rest: prepare(self, *rest)
    try:
        readings = real_run(self, *arguments)
    finally:
        del self.prepare
    return [dataclasses.replace(one, host_us=one.host_us / 8, launch_us=one.launch_us / 8) for one in readings]


timed.TimedSide.run = run


class ModelNew(nn.Module):
    def forward(self, x):
        return x.sum(1)
