from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from arena_helpers import ENVIRONMENT, TANH, candidate, config

from dice_core.arena import probe, sandbox, seccomp
from dice_core.arena.evaluate import evaluate
from dice_core.arena.sandbox import Limits, confine
from dice_core.errors import UnfitError, UsageError
from dice_core.records import WorkItem
from dice_core.settings import Settings
from flows import home


@pytest.fixture(scope="module")
def level() -> str:
    return sandbox.isolation_level()


def confined(folder: Path, work: Callable[[], object], **changes: object) -> str:
    """Run `work` in a confined child; returns what it returned as text, or the exception's name."""
    settings: dict[str, object] = {
        "level": "seccomp", "memory_bytes": None, "cpu_s": 20, "file_bytes": 1 << 20, "open_files": 64,
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
    assert sandbox.at_least("seccomp", "landlock")
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
    limits = Limits("netns", 5, 1, 2, 3, 4, 6, (0, 1), ("/a",), False, True, ("/b",))
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

    assert int(confined(tmp_path, bomb, uid=61_234, level="landlock")) < 40


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


def call(name: str, *arguments: int) -> str:
    """Make a system call by name; its error's name, or "done"."""
    column = ("x86_64", "aarch64").index(platform.machine())
    number = next(group[name][column] for group in seccomp.GROUPS.values() if name in group)
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.syscall(number, *(ctypes.c_ulong(one) for one in arguments))
    return errno.errorcode[ctypes.get_errno()] if done < 0 else "done"


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        ("ptrace", (0, 0, 0, 0), "EPERM"), ("process_vm_readv", (1, 0, 0, 0, 0, 0), "EPERM"),
        ("bpf", (0, 0, 0), "EPERM"),
        ("perf_event_open", (0, 0, 0, 0, 0), "EPERM"), ("userfaultfd", (0,), "EPERM"), ("keyctl", (0, 0), "EPERM"),
        ("io_uring_setup", (1, 0), "EPERM"), ("mount", (0, 0, 0, 0, 0), "EPERM"), ("unshare", (0x10000000,), "EPERM"),
        ("seccomp", (1, 0, 0), "EPERM"), ("prctl", (22, 2, 0), "EPERM"), ("prctl", (1, 0), "EPERM"),
        ("prctl", (15, 0), "EFAULT"), ("prlimit64", (1, 7, 0, 0), "EPERM"), ("prlimit64", (0, 7, 0, 0), "done"),
        ("clone", (17, 0, 0, 0, 0), "EPERM"), ("clone3", (0, 0), "ENOSYS"), ("execve", (0, 0, 0), "EPERM"),
        ("shmget", (0, 4096, 0o1600), "EPERM"), ("mq_open", (0, 0, 0, 0), "EPERM"), ("socket", (2, 1, 0), "EPERM"),
        ("socket", (16, 3, 0), "EPERM"), ("socket", (1, 1, 0), "EPERM"), ("socketpair", (1, 2, 0, 0), "EPERM"),
        ("connect", (99, 0, 0), "ENOENT"), ("kill", (1, 0), "EPERM"), ("sched_setaffinity", (0, 0, 0), "EPERM"),
    ],
)
def test_calls_that_no_kernel_needs_are_refused(
    name: str, arguments: tuple[int, ...], wanted: str, level: str, tmp_path: Path
) -> None:
    needs(level, "seccomp")
    assert confined(tmp_path, lambda: call(name, *arguments)) == wanted


@pytest.mark.parametrize("drivers", [True, False])
def test_only_a_driver_may_make_files_in_memory(drivers: bool, level: str, tmp_path: Path) -> None:
    needs(level, "seccomp")

    def work() -> str:
        try:
            os.close(os.memfd_create("x"))
        except PermissionError:
            return "refused"
        return "made"

    assert confined(tmp_path, work, unix_sockets=drivers) == ("made" if drivers else "refused")


def test_what_kernels_and_drivers_do_goes_on_working(level: str, tmp_path: Path) -> None:
    needs(level, "seccomp")
    libc = ctypes.CDLL(None)

    def work() -> str:
        told: list[str] = []
        gate = threading.Event()

        def run() -> None:
            told.append(str(threading.get_native_id()))
            gate.wait(10)

        thread = threading.Thread(target=run)
        thread.start()
        while not told:
            pass
        Path(f"/proc/self/task/{told[0]}/comm").write_text("cuda-named")  # as cuInit does
        gate.set()
        thread.join()
        left, right = socket.socketpair()
        left.sendall(b"x")
        os.kill(os.getpid(), 0)
        return f"{right.recv(1)!r} {libc.prctl(15, b'name', 0, 0, 0)} {Path('/proc/self/status').read_text()}"

    told = confined(tmp_path, work)
    assert told.startswith("b'x' 0")
    assert "Seccomp:\t2" in told


def test_a_driver_may_listen_on_a_socket_of_its_own(level: str, tmp_path: Path) -> None:
    needs(level, "seccomp")

    def listen() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.bind(f"\0cuda-like-{os.getpid()}")
            sock.listen()
            return "listens"

    def send() -> None:
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close()

    assert confined(tmp_path, listen, unix_sockets=True) == "listens"
    assert confined(tmp_path, send, unix_sockets=True) == "PermissionError"


def test_only_listed_programs_start(level: str, tmp_path: Path) -> None:
    needs(level, "landlock")
    true, false = os.path.realpath("/bin/true"), os.path.realpath("/bin/false")
    programs = (true, "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
    assert confined(tmp_path, lambda: subprocess.run([true], check=False).returncode, programs=programs) == "0"
    assert confined(tmp_path, lambda: subprocess.run([false], check=False), programs=programs) == "PermissionError"


def test_without_a_network_namespace_the_filter_closes_the_network(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(level, "seccomp")
    monkeypatch.setattr(sandbox, "leave_network", lambda: False)
    limits = Limits("seccomp", None, 20, 1 << 20, 64, 30, sandbox.WORKER_UID)
    assert confined(tmp_path, lambda: sandbox.confine(limits, tmp_path), level="rlimits") == "seccomp"
    lower = Limits("landlock", None, 20, 1 << 20, 64, 30, sandbox.WORKER_UID)
    assert confined(tmp_path, lambda: sandbox.confine(lower, tmp_path), level="rlimits") == "rlimits"


@pytest.mark.parametrize(("column", "header"), [
    (0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (1, "/usr/include/asm-generic/unistd.h")])
def test_call_numbers_are_those_of_the_kernels_headers(column: int, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"no {header}")
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text()))
    ours = {name: numbers[column] for group in seccomp.GROUPS.values() for name, numbers in group.items()}
    wrong = {name: number for name, number in ours.items() if name in known and int(known[name]) != number}
    assert wrong == {}
    assert len(known.keys() & ours.keys()) > 60


def test_the_probe_names_each_level_and_the_part_that_fails(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(level, "seccomp")
    assert [step.error for step in probe.diagnose("cpu")] == [""] * 5
    monkeypatch.setitem(seccomp.GROUPS, "new calls", {"getpgid": (121, 155)})
    steps = {step.name: step.error for step in probe.diagnose("cpu", use=lambda: os.getpgid(0))}
    assert "PermissionError [errno 1]" in steps["all layers up to seccomp"]
    assert steps["filter without its group 'new calls'"] == ""
    assert steps["filter with only its group 'new calls'"]
    assert steps["filter with only its group 'network'"] == ""


def test_a_run_below_the_wanted_level_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sandbox, "isolation_level", lambda *_, **__: "netns")
    item = WorkItem(TANH, candidate("return torch.tanh(x)"), plan="quick")
    with pytest.raises(UnfitError, match="level netns, landlock is required") as refused:
        evaluate([item], tmp_path / "attempts", config(tmp_path, required_isolation="landlock"), ENVIRONMENT)
    assert refused.value.exit_code == 7
    assert list((tmp_path / "attempts").iterdir()) == []


def test_the_doctor_fails_below_the_wanted_level(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(home, "isolation_level", lambda *_: "netns")
    wanted = Settings.load(env={"DICE_ISOLATION": "landlock", "DICE_HOME": str(tmp_path), "DICE_DEVICE": "cpu"})
    checks = {check.name: check for check in home.examine(wanted)}
    assert not checks["isolation cpu"].ok and checks["isolation cpu"].required
    assert "netns, but landlock is asked for" in checks["isolation cpu"].found
