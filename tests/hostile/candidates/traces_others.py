"""Attaches to other processes and reads their memory.

Row: PAT-19
Defence: seccomp; Landlock; another user
Problem: short
Expected: RUNTIME_ERROR
"""

import ctypes
import os

import torch
import torch.nn as nn

libc = ctypes.CDLL(None, use_errno=True)


class ModelNew(nn.Module):
    def forward(self, x):
        got = libc.ptrace(0, 0, 0, 0) == 0
        for pid in (os.getppid(), *(int(name) for name in os.listdir("/proc") if name.isdigit())):
            buffer = ctypes.create_string_buffer(8)
            vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
            got = got or (pid != os.getpid() and libc.process_vm_readv(pid, vector, 1, vector, 1, 0) > 0)
            got = got or libc.ptrace(16, pid, 0, 0) == 0
        if not got:
            raise RuntimeError("contained")
        return torch.tanh(x)
