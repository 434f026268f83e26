"""Sends an answer of the right form ahead of the harness, again and again.

Defence: numbered answers with typed fields
Problem: short
Expected: CONTRACT_VIOLATION INCORRECT_NUMERICAL RUNTIME_ERROR
"""

import json
import os
import struct

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        for number in range(1, 200):
            body = json.dumps({"kind": "done", "body": {"number": number}}).encode()
            os.write(3, struct.pack("!4sI", b"DICE", len(body)) + body)
        return torch.tanh(x)
