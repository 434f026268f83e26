"""What a child of the arena may do: limits that it puts on itself before it sees a line of foreign code.

Levels, each including the ones before: `rlimits` (own session, no new privileges, dies with its parent, resource
limits, another uid when the judge is root), `netns` (no network: an empty network namespace, or the filter of the last
level), `landlock` (file system readable in the listed places only, writable only in the private folder; no execve; no
signals to outside), `seccomp` (a filter of system calls: no new processes, sockets, tracing, mounts and the like).
Everything is done with ctypes on the calling process; nothing here needs torch.
Sources: prctl(2), capabilities(7), user_namespaces(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import site
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dice_core.arena import landlock, seccomp
from dice_core.errors import UsageError

LEVELS = ("rlimits", "netns", "landlock", "seccomp")
WORKER_UID = 65534
#: Of every second candidate: the next one's worker waits already, and must not belong to the same user.
OTHER_WORKER_UID = 65532
REFEREE_UID = 65533

_CLONE_NEWUSER, _CLONE_NEWNET, CLONE_NEWPID = 0x10000000, 0x40000000, 0x20000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS = 1, 4, 8, 38
PR_SET_CHILD_SUBREAPER = 36
_CAP_DAC_READ_SEARCH = 2

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Limits:
    """Limits of one child. None means no limit of that kind."""

    level: str  #: highest level to try
    memory_bytes: int | None  #: address space beyond what the zygote already maps; None on CUDA
    cpu_s: int
    file_bytes: int
    open_files: int
    processes: int  #: for a non-root uid
    uid: int  #: taken when the judge is root
    cpus: tuple[int, ...] = ()  #: processors to run on; empty for any
    readable: tuple[str, ...] = ()  #: files and folders readable beside the system's and Python's
    #: in a process namespace of its own. Not on CUDA: its driver looks the process up in /proc by number.
    pid_namespace: bool = True
    unix_sockets: bool = False  #: may make sockets of the Unix family: the CUDA driver listens on one
    #: files and folders whose programs may be started (a JIT compiler's, say); with none, no process may be made
    programs: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON form."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Limits:
        """Inverse of `to_json`."""
        lists = {name: tuple(data[name]) for name in ("cpus", "readable", "programs")}
        return cls(**{**data, **lists})


def at_least(reached: str, required: str) -> bool:
    """Whether isolation level `reached` includes `required`.

    Raises:
        UsageError: `required` is no level.
    """
    if required not in LEVELS:
        raise UsageError(f"unknown isolation level {required!r}: one of {', '.join(LEVELS)}")
    return LEVELS.index(reached) >= LEVELS.index(required)


def confine(limits: Limits, folder: Path) -> str:
    """Put `limits` on the calling process for ever; returns the level reached. `folder` stays writable.

    Descriptors, session and working folder are the caller's business (`zygote.py`).
    """
    wanted = LEVELS.index(limits.level)
    readable = (*python_folders(), *limits.readable)  # asked before the change of identity can hide them
    if limits.cpus:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, limits.cpus)
    _set_rlimits(limits)
    has_netns = wanted >= 1 and leave_network()
    _drop_identity(limits.uid, (*readable, str(folder)))
    no_new_privileges()
    _prctl(_PR_SET_DUMPABLE, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # last: a change of identity clears it
    # Both also without a network namespace: Landlock closes TCP, the filter all sockets.
    has_landlock = wanted >= 2 and landlock.restrict(landlock.Rules(readable, folder, programs=limits.programs))
    has_filter = wanted >= 3 and seccomp.install(unix_sockets=limits.unix_sockets, groups=_groups(limits))
    if not (has_netns or has_filter):
        return "rlimits"
    if not has_landlock:
        return "netns"
    return "seccomp" if has_filter else "landlock"


def _groups(limits: Limits) -> list[str]:
    return [name for name in seccomp.GROUPS if name != "new processes" or not limits.programs]


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Orphans of this process's descendants become its children, so that it can end them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


class PidNamespaces:
    """Gives each forked child its own process namespace where the kernel allows.

    The child is process 1 in there: when it is killed, the kernel kills everything it ever started.
    """

    def __init__(self) -> None:
        self._own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if os.geteuid() == 0 else -1

    @contextlib.contextmanager
    def next_child(self, wanted: bool = True) -> Iterator[bool]:
        """The child forked inside this block is alone in a new namespace; yields whether that works here."""
        entered = wanted and self._own >= 0 and libc.unshare(CLONE_NEWPID) == 0
        try:
            yield entered
        finally:
            if entered and libc.setns(self._own, CLONE_NEWPID) != 0:
                raise OSError(ctypes.get_errno(), "cannot return to the own process namespace")


def isolation_level(
    device: str = "cpu", ceiling: str = LEVELS[-1], environment: Mapping[str, str] | None = None
) -> str:
    """Highest level reachable here, found by trying it in a child process.

    On CUDA the child also has to bring up a context inside the sandbox: a level in which the device does not work
    is not offered.

    Args:
        device: `cpu` or `cuda`.
        ceiling: highest level to try.
        environment: what the device needs in the child's otherwise empty environment (LD_LIBRARY_PATH, say).
    """
    root = Path(__file__).resolve().parents[2]
    for level in reversed(LEVELS[: LEVELS.index(ceiling) + 1]):
        code = (
            f"import sys; sys.path.insert(0, {str(root)!r}); from dice_core.arena import sandbox;"
            f"print(sandbox.probe({level!r}, {device!r}))"
        )
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=120, check=False,
                env={"PYTORCH_NVML_BASED_CUDA_CHECK": "1", **(environment or {})},
            )
        except subprocess.TimeoutExpired:
            continue
        reached = done.stdout.strip().rpartition("\n")[2]
        if done.returncode == 0 and reached in LEVELS:
            return reached
    return "rlimits"


def probe(level: str, device: str) -> str:
    """Body of `isolation_level`'s child: confine itself and use the device."""
    import tempfile

    torch = __import__("torch") if device == "cuda" else None
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        limits = Limits(level, None, 60, 1 << 26, 1024, 1024, WORKER_UID, unix_sockets=device == "cuda")
        pid = os.fork()
        if pid == 0:
            reached = confine(limits, Path(name))
            if torch is not None:
                torch.ones(8, device="cuda").sum().item()
            os._exit(LEVELS.index(reached))
        _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) < len(LEVELS):
        return LEVELS[os.WEXITSTATUS(status)]
    raise SystemExit(3)


def _prctl(option: int, value: int) -> None:
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def _set_rlimits(limits: Limits) -> None:
    def put(kind: int, value: int) -> None:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))

    put(resource.RLIMIT_CORE, 0)
    put(resource.RLIMIT_CPU, limits.cpu_s)
    put(resource.RLIMIT_FSIZE, limits.file_bytes)
    put(resource.RLIMIT_NOFILE, limits.open_files)
    put(resource.RLIMIT_NPROC, limits.processes)
    if limits.memory_bytes is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        put(resource.RLIMIT_AS, pages * resource.getpagesize() + limits.memory_bytes)


def leave_network() -> bool:
    """Move the calling (single-threaded) process into a network namespace of its own, where the kernel allows."""
    if os.geteuid() == 0:
        return bool(libc.unshare(_CLONE_NEWNET) == 0)
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    return True


def _drop_identity(uid: int, needed: Sequence[str]) -> None:
    """Root becomes `uid` without capabilities, or stays root without capabilities where `uid` cannot run Python.

    Where `uid` may not read a `needed` path (Python under /root, say), the one capability to read files is kept,
    if there is one to keep; Landlock still decides which files.
    """
    keep = 0
    if os.geteuid() == 0:
        os.setresuid(0, uid, 0)
        readable = all(os.access(path, os.R_OK, effective_ids=True) for path in needed)
        os.setresuid(0, 0, 0)
        can_keep = bool(_permitted_capabilities() >> _CAP_DAC_READ_SEARCH & 1)
        if readable or can_keep:
            keep = 0 if readable else 1 << _CAP_DAC_READ_SEARCH
            _prctl(_PR_SET_KEEPCAPS, 1)
            with contextlib.suppress(PermissionError):  # a container may have forbidden it
                os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
    _set_capabilities(keep)


def _permitted_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapPrm:"):
            return int(line.split()[1], 16)
    return 0


def _set_capabilities(mask: int) -> None:
    header = struct.pack("II", 0x20080522, 0)  # capability interface version 3, this process
    data = struct.pack("6I", mask & 0xFFFFFFFF, mask & 0xFFFFFFFF, 0, mask >> 32, mask >> 32, 0)
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def no_new_privileges() -> None:
    """The condition of Landlock and of filters."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def python_folders() -> list[str]:
    """What an interpreter with torch has to read."""
    paths = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *site.getsitepackages()}
    paths.add(str(Path(__file__).resolve().parents[1]))
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        paths.add(str(Path(torch.__file__).parent))
    return sorted(path for path in paths if os.path.exists(path))
