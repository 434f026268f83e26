from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_core.arena.children import Child
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


def raw_frames() -> st.SearchStrategy[bytes]:
    """Bytes on the wire: junk, well-formed JSON of any shape, wrong lengths and wrong magics."""
    leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    values = st.recursive(leaf, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner,
                                                                                           max_size=4), max_leaves=12)
    bodies = st.fixed_dictionaries({"kind": values, "body": values}) | values
    texts = st.builds(lambda value: json.dumps(value).encode(), bodies) | st.binary(max_size=200)
    magics = st.sampled_from([b"DICE", b"DICE", b"DICE", b"dice", b"\x00\x00\x00\x00"])
    lengths = st.none() | st.none() | st.integers(0, (1 << 32) - 1)
    return st.builds(lambda text, magic, length: frame(text, magic, length), texts, magics, lengths)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(raw_frames(), min_size=1, max_size=3), st.integers(0, 600))
def test_any_bytes_give_a_frame_or_one_of_the_typed_errors(sent: list[bytes], cut: int) -> None:
    ours, theirs = channel_pair()
    channel = Channel(ours, max_receive_bytes=4096, takes_fds=False)
    theirs.sendall(b"".join(sent)[: cut if cut else None])
    theirs.close()
    with contextlib.closing(channel):
        for _ in range(len(sent) + 1):
            try:
                got = channel.receive(2.0)
            except (ProtocolError, ChannelClosed):
                return
            assert isinstance(got.kind, str) and isinstance(got.body, dict) and got.fds == ()
    raise AssertionError("more frames came out than went in")


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.dictionaries(st.text(max_size=10), st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False,
       allow_infinity=False) | st.text(), max_size=6), st.text(max_size=64).filter(lambda text: text.isprintable()),
       st.lists(st.integers(1, 40), max_size=12))
def test_frames_survive_any_way_of_being_cut_up(body: dict[str, object], kind: str, cuts: list[int]) -> None:
    wire = frame(json.dumps({"kind": kind, "body": body}).encode())
    ours, theirs = channel_pair()
    channel = Channel(ours, max_receive_bytes=1 << 20, takes_fds=False)

    def trickle() -> None:
        at = 0
        for size in [*cuts, len(wire)]:
            theirs.sendall(wire[at : at + size])
            at += size
        theirs.close()

    thread = threading.Thread(target=trickle)
    thread.start()
    with contextlib.closing(channel):
        got = channel.receive(5.0)
        assert (got.kind, got.body) == (kind[:64], body)
        with pytest.raises(ChannelClosed):
            channel.receive(5.0)
    thread.join()


_ANY: st.SearchStrategy[object] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers()), st.just({}))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(_ANY)
def test_typed_getters_give_their_type_or_a_protocol_error(value: object) -> None:
    one = Frame("done", {"x": value})
    for getter, kinds in (("number", (float,)), ("whole", (int,)), ("flag", (bool,)), ("text", (str,)),
                          ("items", (list,)), ("mapping", (dict,)), ("optional_number", (float, type(None)))):
        try:
            got = getattr(one, getter)("x")
        except ProtocolError:
            continue
        assert type(got) in kinds
        assert not isinstance(got, float) or abs(got) < 1e300


@pytest.mark.parametrize("answers", [
    [{"number": 2}], [{"number": 0}], [{"number": -1}], [{"number": True}], [{"number": "1"}], [{}],
    [{"number": 1}, {"number": 1}], [{"number": 1.5}],
])
def test_an_answer_that_is_out_of_turn_ends_the_child(answers: list[dict[str, object]], tmp_path: Path) -> None:
    """The first request must be answered with its own number, and a second answer does not pass for the next one's."""
    ours, theirs = channel_pair()
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    channel = Channel(ours, max_receive_bytes=1 << 20, takes_fds=False)
    child = Child(_Reaper(), pid, channel, tmp_path / "gone", tmp_path / "out", "rlimits")  # type: ignore[arg-type]
    theirs.sendall(b"".join(frame(json.dumps({"kind": "done", "body": one}).encode()) for one in answers))
    with pytest.raises(ProtocolError, match="answer number"):
        for _ in answers:
            child.ask("go", timeout_s=5.0)
    assert child.end() == "reaped"
    theirs.close()


class _Reaper:
    def reap(self, pid: int) -> str:
        """As a zygote does it."""
        os.waitpid(pid, 0)
        return "reaped"
