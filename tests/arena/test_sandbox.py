from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dice_core.arena import sandbox
from dice_core.arena.sandbox import Limits, confine
from dice_core.errors import UsageError


@pytest.fixture(scope="module")
def level() -> str:
    return sandbox.isolation_level()


def confined(folder: Path, work: Callable[[], object], **changes: object) -> str:
    """Run `work` in a confined child; returns what it returned as text, or the exception's name."""
    settings: dict[str, object] = {
        "level": "landlock", "memory_bytes": None, "cpu_s": 20, "file_bytes": 1 << 20, "open_files": 64,
        "processes": 30, "uid": sandbox.WORKER_UID,
    }
    limits = Limits(**(settings | changes))  # type: ignore[arg-type]
    if os.geteuid() == 0:
        os.chown(folder, limits.uid, limits.uid)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_end)
            confine(limits, folder)
            told = str(work())
        except BaseException as error:
            told = type(error).__name__
        os.write(write_end, told.encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answers:
        told = answers.read().decode()
    os.waitpid(pid, 0)
    return told


def needs(level: str, required: str) -> None:
    if not sandbox.at_least(level, required):
        pytest.skip(f"this machine reaches {level} only, {required} is needed")


def test_levels_are_ordered() -> None:
    assert sandbox.at_least("landlock", "netns")
    assert sandbox.at_least("rlimits", "rlimits")
    assert not sandbox.at_least("rlimits", "netns")
    with pytest.raises(UsageError):
        sandbox.at_least("rlimits", "perfect")


def test_a_ceiling_is_kept() -> None:
    assert sandbox.isolation_level(ceiling="rlimits") == "rlimits"


def test_a_child_reaches_the_level_that_the_probe_promises(level: str, tmp_path: Path) -> None:
    settings = Limits(level, None, 20, 1 << 20, 64, 30, sandbox.WORKER_UID)
    assert confined(tmp_path, lambda: confine(settings, tmp_path), level="rlimits") in (level, "rlimits")


def test_limits_survive_json() -> None:
    limits = Limits("netns", 5, 1, 2, 3, 4, 6, (0, 1), ("/a",))
    assert Limits.from_json(limits.to_json()) == limits


def test_the_own_folder_is_writable_and_others_are_not(level: str, tmp_path: Path) -> None:
    inside, outside = tmp_path / "own", tmp_path / "other"
    inside.mkdir()
    outside.mkdir(mode=0o777)
    os.chmod(outside, 0o777)
    assert confined(inside, lambda: (inside / "x").write_text("hello")) == "5"
    needs(level, "landlock")
    assert confined(inside, lambda: (outside / "x").write_text("hello")) == "PermissionError"
    assert list(outside.iterdir()) == []


def test_only_listed_files_are_readable(level: str, tmp_path: Path) -> None:
    needs(level, "landlock")
    own, secret = tmp_path / "own", tmp_path / "secret"
    own.mkdir()
    secret.write_text("seed")
    assert confined(own, secret.read_text) == "PermissionError"
    assert confined(own, secret.read_text, readable=(str(secret),)) == "seed"


def test_there_is_no_network(level: str, tmp_path: Path) -> None:
    needs(level, "netns")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = server.getsockname()

        def connect() -> str:
            with socket.create_connection(address, timeout=2):
                return "connected"

        assert confined(tmp_path, connect) != "connected"


def test_no_program_can_be_started(level: str, tmp_path: Path) -> None:
    needs(level, "landlock")
    assert confined(tmp_path, lambda: subprocess.run(["/bin/true"], check=True)) == "PermissionError"


def test_large_files_are_refused(tmp_path: Path) -> None:
    assert confined(tmp_path, lambda: (tmp_path / "x").write_bytes(b"x" * (2 << 20))) == "OSError"


def test_memory_is_bounded(tmp_path: Path) -> None:
    assert confined(tmp_path, lambda: len(bytearray(512 << 20)), memory_bytes=64 << 20) == "MemoryError"


def test_processes_are_bounded(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("as an ordinary user the limit counts that user's other processes too")

    def bomb() -> int:
        started = []
        with contextlib.suppress(BlockingIOError):
            for _ in range(100):
                pid = os.fork()
                if pid == 0:
                    signal.pause()
                started.append(pid)
        for pid in started:
            os.kill(pid, 9)
        return len(started)

    assert int(confined(tmp_path, bomb, uid=61_234)) < 40


def test_root_becomes_nobody(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    assert confined(tmp_path, os.getuid) == str(sandbox.WORKER_UID)
    assert confined(tmp_path, lambda: os.setuid(0)) == "PermissionError"


def test_the_judge_cannot_be_signalled_or_looked_into(level: str, tmp_path: Path) -> None:
    judge = os.getpid()
    needs(level, "landlock")
    assert confined(tmp_path, lambda: os.kill(judge, 0)) == "PermissionError"
    assert confined(tmp_path, Path(f"/proc/{judge}/environ").read_bytes) == "PermissionError"
    assert confined(tmp_path, Path(f"/proc/{judge}/mem").read_bytes) == "PermissionError"
