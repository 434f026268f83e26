"""Landlock for the calling process, for ever: files by list, no TCP, no signals and no abstract sockets to outside.

Source: landlock(7). Rules belong to inodes, so a rule on `/proc/self` is one on the process that makes it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446

# File rights (bit numbers of the kernel's interface).
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 0, 1, 2, 3, 14, 15
_FILE_RIGHTS = sum(1 << bit for bit in (_EXECUTE, _WRITE_FILE, _READ_FILE, _TRUNCATE, _IOCTL_DEV))
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # number of file rights that each ABI knows
_READ = (1 << _READ_FILE) | (1 << _READ_DIR)
SYSTEM = (
    "/usr", "/lib", "/lib64", "/lib32", "/bin", "/opt", "/proc", "/sys", "/dev", "/run",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group",
    "/etc/localtime", "/etc/alternatives", "/etc/OpenCL", "/etc/nvidia", "/etc/vulkan", "/nix/store",
)
DEVICES = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/dri", "/dev/dxg",
    *sorted(str(path) for path in Path("/dev").glob("nvidia*")),
)

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Rules:
    """What stays possible.

    Attributes:
        readable: files and folders, beside the system's.
        folder: the one that stays writable.
        system: places of the system that may be read.
        devices: device files that may be read and written.
        may_run: programs may be started from `folder` and from all that may be read: for compilers, never candidates.
        programs: files and folders whose programs may be started.
        network: also close TCP (where the kernel can).
        scope: also close signals and abstract sockets to processes outside (where the kernel can).
        writable: further places to write in; for finding out what a driver needs.
    """

    readable: Sequence[str]
    folder: Path
    system: Sequence[str] = SYSTEM
    devices: Sequence[str] = DEVICES
    may_run: bool = False
    programs: Sequence[str] = ()
    network: bool = True
    scope: bool = True
    writable: Sequence[str] = ()


def abi() -> int:
    """Version of the kernel's Landlock, 0 where there is none."""
    return max(0, int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def restrict(rules: Rules) -> bool:
    """Put the rules on the calling thread and all that it starts; no_new_privs must be set. Whether that worked."""
    version = abi()
    if version < 1:
        return False
    known = (1 << _RIGHTS_BY_ABI.get(version, 16)) - 1
    network = 0b11 if version >= 4 and rules.network else 0
    scoped = 0b11 if version >= 6 and rules.scope else 0
    attributes = struct.pack("QQQ", known, network, scoped)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    if ruleset < 0:
        return False
    try:
        run = 1 << _EXECUTE
        device = _READ | (1 << _WRITE_FILE) | (1 << _IOCTL_DEV)
        for path, rights in (
            *((path, _READ | (run if rules.may_run else 0)) for path in (*rules.system, *rules.readable)),
            *((path, device) for path in rules.devices),
            *((path, _READ | run) for path in rules.programs),
            *((path, known) for path in rules.writable),
            (str(rules.folder), known if rules.may_run else known & ~run),
        ):
            _allow(ruleset, path, rights & known)
        _allow_thread_names(ruleset, known)
        return bool(libc.syscall(_RESTRICT, ruleset, ctypes.c_uint(0)) == 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # absent or out of reach: nothing to allow
    try:
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        _add(ruleset, fd, rights)
    finally:
        os.close(fd)


def _allow_thread_names(ruleset: int, known: int) -> None:
    """Let this process name its threads, which it does by writing to /proc/self/task/<thread>/comm.

    cuInit ends with error 304 where it cannot. The descriptor stays open: it keeps the inode that the rule is on.
    """
    try:
        fd = os.open("/proc/self/task", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    _add(ruleset, fd, (_READ | (1 << _WRITE_FILE) | (1 << _TRUNCATE)) & known)


def _add(ruleset: int, fd: int, rights: int) -> None:
    libc.syscall(_ADD, ruleset, ctypes.c_int(1), struct.pack("=Qi", rights, fd), ctypes.c_uint(0))
