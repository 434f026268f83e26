from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from dice_core.arena.frames import Channel, ChannelClosed, DeadlineExceeded, Frame, channel_pair
from dice_core.errors import ProtocolError


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = channel_pair()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def pair(sockets: tuple[socket.socket, socket.socket]) -> tuple[Channel, socket.socket]:
    return Channel(sockets[0], max_receive_bytes=1 << 20, takes_fds=False), sockets[1]


def frame(payload: bytes, magic: bytes = b"DICE", length: int | None = None) -> bytes:
    return struct.pack("!4sI", magic, len(payload) if length is None else length) + payload


def test_a_frame_comes_back_as_it_was_sent(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    sender = Channel(theirs, max_receive_bytes=1 << 20, takes_fds=False)
    receiver = Channel(ours, max_receive_bytes=1 << 24, takes_fds=False)
    body = {"text": "ü" * 200_000, "number": 1.5, "list": [1, None, True]}
    thread = threading.Thread(target=sender.send, args=("kind", body))
    thread.start()
    got = receiver.receive(5.0)
    thread.join()
    assert (got.kind, got.body) == ("kind", body)


def test_descriptors_travel_with_a_frame(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    read_end, write_end = os.pipe()
    Channel(theirs, max_receive_bytes=1, takes_fds=False).send("take", {}, [read_end])
    os.close(read_end)
    got = Channel(ours, max_receive_bytes=100, takes_fds=True).receive(1.0)
    os.write(write_end, b"x")
    assert os.read(got.fds[0], 1) == b"x"
    os.close(write_end)
    os.close(got.fds[0])


@pytest.mark.parametrize(
    "raw",
    [
        frame(b"{}", magic=b"HTTP"),
        frame(b"not json"),
        frame(b"\xff\xfe"),
        frame(b"[1, 2]"),
        frame(b'{"kind": "done"}'),
        frame(b'{"kind": 3, "body": {}}'),
        frame(b'{"kind": "done", "body": []}'),
        frame(b'{"kind": "done", "body": {"x": NaN}}'),
        frame(b"[" * 100_000),
        frame(b'{"kind": "done", "body": {"x": ' + b"9" * 10_000 + b"}}"),
        frame(b"", length=1 << 30),
    ],
)
def test_what_is_no_frame_is_a_protocol_error(raw: bytes, pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    theirs.sendall(raw)
    with pytest.raises(ProtocolError):
        channel.receive(2.0)


def test_a_silent_or_slow_sender_meets_the_deadline(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    with pytest.raises(DeadlineExceeded):
        channel.receive(0.05)
    theirs.sendall(frame(b'{"kind": "done", "body": {}}')[:-3])  # never finished
    with pytest.raises(DeadlineExceeded):
        channel.receive(0.05)


def test_a_hung_up_sender_closes_the_channel(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    theirs.sendall(b"DI")
    theirs.close()
    with pytest.raises(ChannelClosed):
        channel.receive(1.0)


def test_a_dead_process_closes_the_channel_though_a_stray_child_holds_the_socket(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, _ = pair
    pid = os.posix_spawn("/bin/true", ["true"], {})
    pidfd = os.pidfd_open(pid)
    with pytest.raises(ChannelClosed):
        channel.receive(10.0, alive_fd=pidfd)
    os.waitpid(pid, 0)
    os.close(pidfd)


@pytest.mark.parametrize("value", [True, "1", None, [], 1e400])
def test_typed_fields_refuse_other_types(value: object) -> None:
    with pytest.raises(ProtocolError):
        Frame("done", {"host_us": value}).number("host_us")


def test_frames_are_plain_json_on_the_wire(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    Channel(ours, max_receive_bytes=1, takes_fds=False).send("go", {"a": 1})
    raw = theirs.recv(1000)
    assert json.loads(raw[8:]) == {"kind": "go", "body": {"a": 1}}
