"""Typed frames over a Unix stream socket: the only way that the judge and its children talk.

Wire form: the magic `DICE`, a 4-byte big-endian length, then that many bytes of JSON `{"kind": …, "body": {…}}`.
Nothing is ever unpickled. Tensors do not travel here: a frame names bytes in a shared memory region. A frame that is
malformed, too large or out of turn raises `ProtocolError`, which the judge holds against the worker that sent it.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dice_core.errors import ArenaError, ProtocolError

_MAGIC = b"DICE"
_PREFIX = struct.Struct("!4sI")
#: Sources of 10 MB must pass towards a child; a child has no reason to send as much back.
MAX_TO_CHILD_BYTES = 64 << 20
MAX_FROM_CHILD_BYTES = 24 << 20
_MAX_FDS = 8
_LARGEST = 1e300


class ChannelClosed(ArenaError):
    """The other side hung up or died."""


class DeadlineExceeded(ArenaError):
    """The other side did not answer in time."""


@dataclass(frozen=True)
class Frame:
    """One message. The typed getters check what an untrusted side wrote."""

    kind: str
    body: dict[str, Any]
    fds: tuple[int, ...] = field(default=(), compare=False)

    def text(self, name: str, limit: int = 1 << 16) -> str:
        """A text field, cut at `limit` characters."""
        value = self.body.get(name)
        if not isinstance(value, str):
            raise ProtocolError(f"frame {self.kind!r}: field {name!r} is not text")
        return value[:limit]

    def number(self, name: str) -> float:
        """A finite number."""
        value = self.body.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
            raise ProtocolError(f"frame {self.kind!r}: field {name!r} is not a finite number")
        return float(value)

    def whole(self, name: str) -> int:
        """A whole number, exact whatever its size."""
        value = self.body.get(name)
        if type(value) is not int:
            raise ProtocolError(f"frame {self.kind!r}: field {name!r} is not a whole number")
        return value

    def optional_number(self, name: str) -> float | None:
        """A finite number or null."""
        return None if self.body.get(name) is None else self.number(name)

    def flag(self, name: str) -> bool:
        """A boolean field."""
        value = self.body.get(name)
        if not isinstance(value, bool):
            raise ProtocolError(f"frame {self.kind!r}: field {name!r} is not a boolean")
        return value

    def items(self, name: str, limit: int = 100_000) -> list[Any]:
        """A list field of at most `limit` entries."""
        value = self.body.get(name)
        if not isinstance(value, list) or len(value) > limit:
            raise ProtocolError(f"frame {self.kind!r}: field {name!r} is not a list of at most {limit} entries")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """An object field."""
        value = self.body.get(name)
        if not isinstance(value, dict):
            raise ProtocolError(f"frame {self.kind!r}: field {name!r} is not an object")
        return value


class Channel:
    """One end of the socket. Not shared between threads.

    Args:
        sock: a connected stream socket; the channel owns it.
        max_receive_bytes: largest frame taken from the other side.
        takes_fds: whether file descriptors may be received (a child takes them; the judge never does).
    """

    def __init__(self, sock: socket.socket, *, max_receive_bytes: int, takes_fds: bool) -> None:
        self._sock = sock
        self._max_receive_bytes = max_receive_bytes
        self._takes_fds = takes_fds

    def fileno(self) -> int:
        """Descriptor of the socket, for polling."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close this end."""
        self._sock.close()

    def send(
        self, kind: str, body: Mapping[str, Any] | None = None, fds: Sequence[int] = (), *,
        timeout_s: float | None = None,
    ) -> None:
        """Send one frame, with descriptors `fds` riding on its first byte.

        Raises:
            ChannelClosed: nobody reads any more.
            DeadlineExceeded: the other side does not read.
        """
        raw = json.dumps({"kind": kind, "body": dict(body or {})}, allow_nan=False).encode()
        message = memoryview(_PREFIX.pack(_MAGIC, len(raw)) + raw)
        try:
            self._sock.settimeout(timeout_s)
            sent = socket.send_fds(self._sock, [message], list(fds)) if fds else 0
            self._sock.sendall(message[sent:])
        except TimeoutError as error:
            raise DeadlineExceeded(f"frame {kind!r} was not read within {timeout_s} s") from error
        except OSError as error:
            raise ChannelClosed(f"cannot send frame {kind!r}: {error}") from error

    def receive(self, timeout_s: float | None = None, *, alive_fd: int | None = None) -> Frame:
        """Wait for one whole frame.

        Args:
            timeout_s: for the whole frame, None to wait for ever.
            alive_fd: a pidfd; when its process ends and no bytes are left, the channel counts as closed even if a
                stray grandchild still holds the socket.

        Raises:
            ChannelClosed: hung up or died.
            DeadlineExceeded: no whole frame in time.
            ProtocolError: not a frame.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        fds: list[int] = []
        try:
            magic, length = _PREFIX.unpack(self._read(_PREFIX.size, deadline, alive_fd, fds))
            if magic != _MAGIC:
                raise ProtocolError("bytes on the frame channel that are no frame")
            if length > self._max_receive_bytes:
                raise ProtocolError(f"frame of {length} bytes, the limit is {self._max_receive_bytes}")
            return _parse(bytes(self._read(length, deadline, alive_fd, fds)), tuple(fds))
        except BaseException:
            for fd in fds:
                with contextlib.suppress(OSError):
                    socket.close(fd)
            raise

    def _read(self, size: int, deadline: float | None, alive_fd: int | None, fds: list[int]) -> bytearray:
        taken = bytearray()
        while len(taken) < size:
            self._wait(deadline, alive_fd)
            want = min(size - len(taken), 1 << 20)
            try:
                self._sock.settimeout(5.0)
                if self._takes_fds:
                    piece, new, _, _ = socket.recv_fds(self._sock, want, _MAX_FDS)
                    fds.extend(new)
                else:
                    piece = self._sock.recv(want)
            except TimeoutError:
                continue
            except OSError as error:
                raise ChannelClosed(f"channel broke: {error}") from error
            if not piece:
                raise ChannelClosed("the other side hung up")
            taken += piece
        return taken

    def _wait(self, deadline: float | None, alive_fd: int | None) -> None:
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        if alive_fd is not None:
            poller.register(alive_fd, select.POLLIN)
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        ready = {fd for fd, _ in poller.poll(remaining)}
        if self._sock.fileno() in ready:
            return
        if alive_fd in ready:
            raise ChannelClosed("the process ended")
        raise DeadlineExceeded("no answer in time")


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """A connected pair of stream sockets: one end stays, the other goes to a child."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _parse(raw: bytes, fds: tuple[int, ...]) -> Frame:
    try:
        message = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"frame is not JSON: {str(error)[:200]}") from None
    if not isinstance(message, dict) or set(message) != {"kind", "body"}:
        raise ProtocolError("frame without kind and body")
    kind, body = message["kind"], message["body"]
    if not isinstance(kind, str) or not isinstance(body, dict):
        raise ProtocolError("frame whose kind is no text or whose body is no object")
    return Frame(kind[:64], body, fds)
