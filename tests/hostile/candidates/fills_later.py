"""Returns at once and lets a thread do the work.

Row: STR-03
Defence: children are stopped when they have answered; poisoned memory
Expected: INCORRECT_NUMERICAL CONTRACT_VIOLATION TIMING_DISAGREE
"""

import threading
import time

import torch
import torch.nn as nn


def finish(y, x):
    time.sleep(0.02)
    y.copy_(torch.tanh(x))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        threading.Thread(target=finish, args=(y, x)).start()
        return y
