"""Running one compiler: own process group, own folder, limits, a deadline, and what it cost."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dice_core.arena.build_sandbox import Confinement

GIB = 1 << 30
#: Compiler messages are kept up to this many bytes: the head, where the first error is, and the tail.
LOG_BYTES = 64 * 1024
#: (limit, use) of this container's memory, cgroup version 2 and 1.
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_POLL_S = 0.01
_MAX_FILE_BYTES = 2 * GIB
#: The limits are set by a shell between fork and exec, because Python code there is unsafe in a threaded process.
_LIMIT = 'ulimit -c 0; ulimit -t "$1"; ulimit -v "$2"; ulimit -f "$3"; shift 3; exec "$@"'


@dataclass(frozen=True)
class StepOutcome:
    """How one compiler run ended.

    Attributes:
        returncode: Exit status; negative for a signal.
        timed_out: Whether the deadline ended it.
        log: Its output, standard error after standard output.
        seconds: Wall time.
        cpu_seconds: User and system time of the whole process tree.
        peak_bytes: Largest resident size of any process of the tree.
    """

    returncode: int
    timed_out: bool
    log: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def clip(text: str, limit: int = LOG_BYTES) -> str:
    """Head and tail of `text`, at most `limit` bytes of UTF-8 in all."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    note = f"\n… {len(raw) - limit} bytes left out …\n"
    half = (limit - len(note.encode())) // 2
    return raw[:half].decode("utf-8", "ignore") + note + raw[-half:].decode("utf-8", "ignore")


def run_step(
    argv: Sequence[str],
    *,
    cwd: Path,
    path: str,
    deadline_s: float,
    memory_bytes: int,
    log_name: str,
    confinement: Confinement | None = None,
) -> StepOutcome:
    """Run one command to its end, or kill its whole process group at the deadline.

    Args:
        argv: The command.
        cwd: Its working folder, home and temporary folder.
        path: Its PATH; the rest of the environment is fixed.
        deadline_s: Wall seconds; twice as many CPU seconds are the second limit.
        memory_bytes: Address space of each process.
        log_name: Name of the file in `cwd` that takes its output.
        confinement: What it may reach; only for a caller that has one thread, since it acts between fork and exec.
    """
    environment = {"PATH": path, "HOME": str(cwd), "TMPDIR": str(cwd), "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
    limits = (str(max(1, int(deadline_s * 2))), str(memory_bytes // 1024), str(_MAX_FILE_BYTES // 512))
    log_path = cwd / log_name
    start = time.monotonic()
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LIMIT, "sh", *limits, *argv],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            close_fds=True,
            preexec_fn=None if confinement is None else confinement.apply,
        )
        timed_out = False
        try:
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() - start > deadline_s:
                    timed_out = True
                    _kill_group(process.pid)
                    _, status, usage = os.wait4(process.pid, 0)
                    break
                time.sleep(_POLL_S)
        except BaseException:
            _kill_group(process.pid)
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    _kill_group(process.pid)  # whatever the command left behind in its group
    text = log_path.read_bytes()[: 4 * 1024 * 1024].decode("utf-8", "replace")
    return StepOutcome(
        returncode=process.returncode,
        timed_out=timed_out,
        log=clip(text),
        seconds=time.monotonic() - start,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_bytes=usage.ru_maxrss * 1024,
    )


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def available_memory_bytes() -> int:
    """Memory that new processes can use without swapping: the kernel's estimate, or less where a cgroup says less."""
    free = 4 * GIB
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    for limit, used in _CGROUPS:
        with contextlib.suppress(OSError, ValueError):  # absent, or the word "max"
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
    return max(0, free)
