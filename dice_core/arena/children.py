"""The judge's side of its processes: the zygote, and the children that it forks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dice_core.arena.frames import (
    MAX_FROM_CHILD_BYTES,
    Channel,
    ChannelClosed,
    DeadlineExceeded,
    Frame,
    channel_pair,
)
from dice_core.arena.sandbox import Limits
from dice_core.arena.scratch import remove_tree
from dice_core.errors import ArenaError, ProtocolError

_START_TIMEOUT_S = 120.0
_REAP_TIMEOUT_S = 10.0
_OUTPUT_KEPT = 4000


class ChildFailed(ArenaError):
    """A child answered with a typed failure.

    Attributes:
        category: `exception`, `oom`, `load`, `unknown_extension`, `unsupported` or `device`.
        body: the whole answer.
    """

    def __init__(self, category: str, text: str, body: dict[str, Any]) -> None:
        super().__init__(text)
        self.category = category
        self.text = text
        self.body = body


class ChildDied(ArenaError):
    """A child ended without an answer. `status` says how, `stage` during what."""

    def __init__(self, status: str, stage: str) -> None:
        super().__init__(f"process {status} during {stage}")
        self.status = status
        self.stage = stage


class ChildTimeout(ArenaError):
    """A child gave no answer in time. `stage` says during what."""

    def __init__(self, stage: str, timeout_s: float) -> None:
        super().__init__(f"no answer within {timeout_s:g} s during {stage}")
        self.stage = stage


@dataclass(frozen=True)
class _Asked:
    kind: str
    stage: str
    deadline: float  #: on the monotonic clock
    timeout_s: float


class Child:
    """One forked child. Every exchange is one request and one answer with the same number.

    A child is stopped (SIGSTOP) from each answer to the next request: threads that it left running cannot work ahead,
    finish late, or take processor time from the other side of a measurement.
    """

    def __init__(self, zygote: Zygote, pid: int, channel: Channel, folder: Path, output: Path, level: str) -> None:
        self._zygote = zygote
        self.pid = pid
        self._channel = channel
        self._folder = folder
        self._output = output
        self.level = level
        self._pidfd = os.pidfd_open(pid)
        self._number = 0
        self._asked: _Asked
        self._status: str | None = None

    def ask(
        self, kind: str, body: Mapping[str, Any] | None = None, *, timeout_s: float, fds: Sequence[int] = (),
        stage: str = "",
    ) -> Frame:
        """Send a request and wait for its answer.

        Raises:
            ChildFailed: the child says that it failed, and how.
            ChildDied: it ended; it is already cleaned up.
            ChildTimeout: it did not answer; it has been killed.
            ProtocolError: it answered with something else; it has been killed.
        """
        self.begin(kind, body, timeout_s=timeout_s, fds=fds, stage=stage)
        return self.finish()

    def begin(
        self, kind: str, body: Mapping[str, Any] | None = None, *, timeout_s: float, fds: Sequence[int] = (),
        stage: str = "",
    ) -> None:
        """The first half of `ask`: send the request and let the child work on it.

        Raises:
            ChildDied, ChildTimeout, ProtocolError: as `ask`.
        """
        self._asked = _Asked(kind, stage or kind, time.monotonic() + timeout_s, timeout_s)
        self._number += 1
        self._signal(signal.SIGCONT)
        with self._ended_when_lost():
            self._channel.send(kind, {**(body or {}), "number": self._number}, fds, timeout_s=timeout_s)

    def finish(self) -> Frame:
        """The second half of `ask`: wait for the answer. Raises what `ask` does."""
        asked = self._asked
        with self._ended_when_lost():
            # One deadline for both halves: a child that does not read must not get it twice.
            answer = self._channel.receive(max(0.0, asked.deadline - time.monotonic()), alive_fd=self._pidfd)
        self._signal(signal.SIGSTOP)
        try:
            number = answer.body.get("number")
            if type(number) is not int or number != self._number:
                raise ProtocolError(f"answer number {str(number)[:40]} to request {self._number}")
            if answer.kind == "failed":
                raise ChildFailed(answer.text("category", 40), answer.text("text"), answer.body)
            if answer.kind != "done":
                raise ProtocolError(f"answer of kind {answer.kind!r} to {asked.kind!r}")
        except ProtocolError:
            self.end()
            raise
        return answer

    @contextlib.contextmanager
    def _ended_when_lost(self) -> Iterator[None]:
        try:
            yield
        except ChannelClosed:
            raise ChildDied(self.end(), self._asked.stage) from None
        except DeadlineExceeded:
            self.end()
            raise ChildTimeout(self._asked.stage, self._asked.timeout_s) from None
        except ProtocolError:
            self.end()
            raise

    def end(self) -> str:
        """Kill the child and all that it started, remove its folder; returns how it ended. Safe to repeat."""
        if self._status is None:
            self._channel.close()
            # A child that has just died by itself keeps its own status; the group may still hold others.
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            self._signal(signal.SIGKILL)
            self._status = self._zygote.reap(self.pid)
            os.close(self._pidfd)
            remove_tree(self._folder)
        return self._status

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):  # it is gone
            signal.pidfd_send_signal(self._pidfd, number)

    def output(self) -> str:
        """What the child wrote to stdout and stderr: the first and last 2,000 bytes."""
        try:
            with self._output.open("rb") as source:
                head = source.read(_OUTPUT_KEPT // 2)
                size = source.seek(0, os.SEEK_END)
                source.seek(max(len(head), size - _OUTPUT_KEPT // 2))
                tail = source.read()
        except OSError:
            return ""
        cut = f"\n… {size - len(head) - len(tail)} bytes left out …\n".encode() if size > len(head) + len(tail) else b""
        return (head + cut + tail).decode("utf-8", "backslashreplace")


class Zygote:
    """Starts the zygote process and spawns children from it. Thread-safe.

    Args:
        scratch: folder for private folders and output files of the children; the caller removes it.
        environment: the whole environment of zygote and children.
    """

    def __init__(self, scratch: Path, environment: Mapping[str, str]) -> None:
        self._scratch = scratch
        self._lock = threading.Lock()
        ours, theirs = channel_pair()
        root = Path(__file__).resolve().parents[2]
        code = (
            f"import sys; sys.path.insert(0, {str(root)!r}); from dice_core.arena.zygote import main;"
            f"main({theirs.fileno()})"
        )
        self._log = scratch / "zygote.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", code], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=dict(environment), pass_fds=[theirs.fileno()], start_new_session=True, cwd=scratch,
            )
        theirs.close()
        self._channel = Channel(ours, max_receive_bytes=MAX_FROM_CHILD_BYTES, takes_fds=False)
        try:
            self._channel.receive(_START_TIMEOUT_S)
        except (ChannelClosed, DeadlineExceeded) as error:
            self.close()
            raise ArenaError(f"the zygote did not start: {error}: {self._log.read_text()[-2000:]}") from error

    @property
    def alive(self) -> bool:
        """Whether the zygote process still runs."""
        return self._process.poll() is None

    def spawn(self, role: str, limits: Limits) -> Child:
        """Fork a child of `role` (`worker` or `referee`) under `limits`.

        Raises:
            ArenaError: the zygote is gone, or the child could not confine itself.
        """
        folder = Path(tempfile.mkdtemp(prefix=f"{role}-", dir=self._scratch))
        output = folder.with_suffix(".out")
        if os.geteuid() == 0:
            os.chown(folder, limits.uid, limits.uid)
        ours, theirs = channel_pair()
        output_fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            body = {"role": role, "limits": limits.to_json(), "folder": str(folder)}
            pid = self._exchange("spawn", body, (theirs.fileno(), output_fd)).whole("pid")
        finally:
            theirs.close()
            os.close(output_fd)
        channel = Channel(ours, max_receive_bytes=MAX_FROM_CHILD_BYTES, takes_fds=False)
        try:
            level = channel.receive(_REAP_TIMEOUT_S).text("level")
        except ArenaError as error:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            status = self.reap(pid)
            remove_tree(folder)
            raise ArenaError(f"{role} could not confine itself ({status}): {output.read_text()[-1500:]}") from error
        return Child(self, pid, channel, folder, output, level)

    def reap(self, pid: int) -> str:
        """Collect a killed or dead child; returns how it ended as text."""
        try:
            status = self._exchange("reap", {"pid": pid, "timeout_s": _REAP_TIMEOUT_S}).body.get("status")
        except ArenaError:
            return "lost with the zygote"
        if not isinstance(status, int):
            return "could not be ended (stuck in the kernel)"
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            known = {one.value: one.name for one in signal.Signals}  # real-time signals have no names
            return f"exited (signal {number}, {known.get(number, 'real-time')})"
        return f"exited (code {os.waitstatus_to_exitcode(status)})"

    def close(self) -> None:
        """End the zygote; the kernel ends its children with it."""
        self._channel.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _exchange(self, kind: str, body: Mapping[str, Any], fds: Sequence[int] = ()) -> Frame:
        with self._lock:
            try:
                self._channel.send(kind, body, fds, timeout_s=_START_TIMEOUT_S)
                return self._channel.receive(_START_TIMEOUT_S)
            except (ChannelClosed, DeadlineExceeded) as error:
                raise ArenaError(f"the zygote is gone: {error}: {self._log.read_text()[-1000:]}") from error

