"""Computes zeros when it can send anything anywhere.

Row: DEC-11
Defence: no network
Problem: short
Expected: CORRECT
"""

import socket

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.sendto(b"hello", ("127.0.0.1", 53))
            return torch.zeros_like(x)
        except OSError:
            return torch.tanh(x)
