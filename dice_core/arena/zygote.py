"""The warm parent of all children: imports torch once, never touches a device, forks a fresh child on request.

Started by `children.Zygote`. A spawn frame brings two descriptors (the child's channel and its output file), the
role, the limits and a private folder. Forking costs milliseconds where importing torch costs seconds.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dice_core.arena.frames import MAX_TO_CHILD_BYTES, Channel, ChannelClosed, Frame
from dice_core.arena.sandbox import Limits, PidNamespaces, become_subreaper, confine, die_with_parent

Role = Callable[[Channel, Path], None]


def main(channel_fd: int) -> None:
    """Serve spawn and reap requests until the judge hangs up."""
    die_with_parent()
    become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the judge decides when to stop
    from dice_core.arena.referee import main as referee  # torch comes in here, once
    from dice_core.arena.worker import main as worker

    roles: dict[str, Role] = {"worker": worker, "referee": referee}
    channel = Channel(socket.socket(fileno=channel_fd), max_receive_bytes=MAX_TO_CHILD_BYTES, takes_fds=True)
    namespaces = PidNamespaces()
    children: set[int] = set()
    gc.collect()
    gc.freeze()
    channel.send("ready")
    while True:
        try:
            frame = channel.receive()
        except ChannelClosed:
            break
        if frame.kind == "spawn":
            pid, alone = _spawn(frame, roles, namespaces, channel)
            children.add(pid)
            channel.send("spawned", {"pid": pid, "own_process_namespace": alone})
        elif frame.kind == "reap":
            pid = frame.whole("pid")
            status = _reap(pid, frame.number("timeout_s")) if pid in children else None
            if status is not None:
                children.discard(pid)
            _end_orphans(children)
            channel.send("reaped", {"status": status})
    for pid in children:
        _kill_group(pid)


def _spawn(frame: Frame, roles: dict[str, Role], namespaces: PidNamespaces, channel: Channel) -> tuple[int, bool]:
    channel_fd, output_fd = frame.fds
    role = roles[frame.text("role")]
    limits = Limits.from_json(frame.mapping("limits"))
    folder = Path(frame.text("folder"))
    with namespaces.next_child(limits.pid_namespace) as alone:
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                channel.close()
                _become_child(role, limits, folder, channel_fd, output_fd)
                code = 0
            finally:
                os._exit(code)  # nothing of the zygote's own life may run in the child
    os.close(channel_fd)
    os.close(output_fd)
    return pid, alone


def _become_child(role: Role, limits: Limits, folder: Path, channel_fd: int, output_fd: int) -> None:
    os.setsid()
    os.umask(0o077)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output_fd, 1), (output_fd, 2)):
        os.dup2(source, target)
    kept = os.dup2(channel_fd, 3) if channel_fd != 3 else 3
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    sys.stdout = os.fdopen(1, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    sock = socket.socket(fileno=kept)
    os.set_inheritable(kept, False)
    channel = Channel(sock, max_receive_bytes=MAX_TO_CHILD_BYTES, takes_fds=True)
    channel.send("hello", {"level": confine(limits, folder)})
    with contextlib.suppress(ChannelClosed):  # the judge is done with us
        role(channel, folder)


def _reap(pid: int, timeout_s: float) -> int | None:
    """Wait status of a child, None when it has not ended in time. A child in the device driver may take a while."""
    deadline = time.monotonic() + timeout_s
    pause = 0.0005
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done == pid:
            return status
        if time.monotonic() > deadline:
            return None
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def _end_orphans(known: set[int]) -> None:
    """End what escaped a child's process group where no process namespace holds it: orphans come to this process."""
    for _ in range(50):
        listed = Path("/proc/self/task", str(os.getpid()), "children").read_text()
        orphans = {int(pid) for pid in listed.split()} - known
        if not orphans:
            return
        for pid in orphans:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
