"""What a compiler may reach: its own folder to write, its toolchain and headers to read and run, nothing else.

A candidate's `#include "/etc/passwd"` or `.incbin` would otherwise copy any file that the user can read into the
artefact or the error text. Landlock (Linux 5.13 and newer) closes the file system, an empty network namespace the
network where the kernel lets us make one. Candidates (`sandbox.py`) may never execute a program; compilers do little
else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dice_core.arena import landlock, sandbox
from dice_core.arena.toolchain import ATEN_INCLUDE, LIGHT_INCLUDE, Toolchain

#: The compiler driver, binutils, the C library and the standard headers, where every distribution has them.
_SYSTEM = (
    "/usr/bin", "/usr/local/bin", "/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/lib", "/lib32",
    "/lib64", "/usr/include", "/usr/local/include", "/usr/local/lib", "/usr/local/lib64", "/usr/x86_64-linux-gnu",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/nix/store",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


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
        return cls(tuple(str(root.resolve()) for root in roots), str(work))

    def apply(self) -> bool:
        """Confine the calling process for ever; whether the kernel could. Called between fork and exec."""
        sandbox.no_new_privileges()
        sandbox.die_with_parent()
        return landlock.restrict(landlock.Rules(
            self.readable, Path(self.writable), system=_SYSTEM, devices=_DEVICES, may_run=True))
