"""What a compiler may reach: its own folder to write, its toolchain and headers to read and run, nothing else.

A candidate's `#include "/etc/passwd"` or `.incbin` would otherwise copy any file that the user can read into the
artefact or the error text. Landlock (Linux 5.13 and newer) closes the file system, an empty network namespace the
network where the kernel lets us make one. Sources: landlock(7), network_namespaces(7).

Apart from `sandbox.py`, which confines candidates: those may never execute a program, a compiler does nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from dice_core.arena.toolchain import ATEN_INCLUDE, LIGHT_INCLUDE, Toolchain

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVS, _DEATH_SIGNAL = 38, 1
_NEWUSER, _NEWNET = 0x10000000, 0x40000000
#: File rights by bit: execute 0, write 1, read 2, list 3, truncate 14, ioctl 15. Each ABI knows the first so many.
_KNOWN_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_RUN = 1 << 0 | 1 << 2 | 1 << 3
_FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
#: The compiler driver, binutils, the C library and the standard headers, where every distribution has them.
_SYSTEM = (
    "/usr/bin", "/usr/local/bin", "/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/lib", "/lib32",
    "/lib64", "/usr/include", "/usr/local/include", "/usr/local/lib", "/usr/local/lib64", "/usr/x86_64-linux-gnu",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/nix/store",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Confinement:
    """Folders that one compiler run may read and execute from, and the only one that it may write to."""

    readable: tuple[str, ...]
    writable: str

    @classmethod
    def of_compiler(cls, toolchain: Toolchain, work: Path, kit: Path | None) -> Confinement:
        """What the compilers of `toolchain` need to build in `work`."""
        roots = [toolchain.torch_root, toolchain.python_include, LIGHT_INCLUDE, ATEN_INCLUDE]
        roots.append(toolchain.torch_root.parent / "nvidia")  # what libtorch_cuda is linked with, for the linker
        roots += [path for path in (toolchain.cuda_home, kit) if path is not None]
        for tool in (toolchain.cxx, toolchain.nvcc):
            if tool is not None:
                prefix = tool.resolve().parent.parent  # /opt/rh/gcc-toolset-13/root/usr, say
                roots += [] if str(prefix) in ("/", "/usr", "/usr/local") else [prefix]
        return cls((*_SYSTEM, *(str(root.resolve()) for root in roots)), str(work))

    def apply(self) -> bool:
        """Confine the calling process for ever; whether the kernel could. Called between fork and exec."""
        _libc.prctl(_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0)
        _libc.prctl(_DEATH_SIGNAL, ctypes.c_ulong(9), 0, 0, 0)
        abi = landlock_abi()
        if abi < 1:
            return False
        known = (1 << _KNOWN_BY_ABI.get(abi, 16)) - 1
        attributes = struct.pack("QQQ", known, 0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0)
        attributes = attributes[: 8 if abi < 4 else 16 if abi < 6 else 24]
        ruleset = _libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
        if ruleset < 0:
            return False
        try:
            for path in self.readable:
                _allow(ruleset, path, _RUN & known)
            for path in _DEVICES:
                _allow(ruleset, path, (1 << 1 | 1 << 2) & known)
            _allow(ruleset, self.writable, known)
            return bool(_libc.syscall(_RESTRICT, ruleset, ctypes.c_uint(0)) == 0)
        finally:
            os.close(ruleset)


def landlock_abi() -> int:
    """Version of Landlock's interface in this kernel; 0 or less when there is none."""
    return int(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1)))


def leave_network() -> bool:
    """Move the calling (single-threaded) process into an empty network namespace; whether the kernel allowed it."""
    if os.geteuid() == 0:
        return bool(_libc.unshare(_NEWNET) == 0)
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(_NEWUSER | _NEWNET) != 0:
        return False
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    return True


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not on this machine
    try:
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, fd)
        _libc.syscall(_ADD, ruleset, ctypes.c_int(1), rule, ctypes.c_uint(0))
    finally:
        os.close(fd)
