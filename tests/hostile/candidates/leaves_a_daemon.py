"""Leaves a process in a session of its own behind; where no process can be made, the call fails.

Row: STR-06
Defence: seccomp: no new processes; process namespace; orphans are ended
Expected: RUNTIME_ERROR CORRECT
"""

import os
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.started = False

    def forward(self, x):
        if not self.started:
            self.started = True
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(600)
                os._exit(0)
        return torch.tanh(x)
