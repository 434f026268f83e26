"""Scheduling a batch of builds: one generated ninja file, one edge for each tier of each request.

ninja keeps the cores busy, goes on past failures, and bounds memory by a pool: compiling torch's own headers takes
gigabytes, so only as many of those run side by side as fit, while light attempts take the other cores. An edge whose
request is decided already ends at once. Nothing of a batch need be kept for a later run: what is finished is in the
cache, so a killed batch goes on with what is left.

A machine without ninja (a GPU box that has only torch, numpy and pyarrow) runs the same commands from threads.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from dice_core.arena.build_cache import BuildCache, BuildResult
from dice_core.arena.build_job import Terms
from dice_core.arena.build_run import GIB, available_memory_bytes, clip
from dice_core.arena.capture import BuildRequest

#: Resident memory of one attempt, measured with nvcc 13.0 and torch 2.13: full headers 3.1 GB, light ones 0.2 GB.
_HEAVY_BYTES = GIB * 35 // 10
_LIGHT_BYTES = GIB * 6 // 10
_RESERVE_BYTES = GIB
_ROOT = Path(__file__).resolve().parents[2]
_JOB = (
    f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from dice_core.arena.build_job import main;"
    "raise SystemExit(main(sys.argv[1:]))"
)
#: Starts ninja so that it is asked to stop, and with it every compiler, when this process is killed.
_TIED = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"


@dataclass(frozen=True)
class Pending:
    """A request, and the tiers that are left to try in order."""

    request: BuildRequest
    tiers: tuple[str, ...]


@dataclass(frozen=True)
class Width:
    """How many attempts run side by side: in all, and of those with torch's own headers."""

    jobs: int
    heavy: int

    @classmethod
    def of_machine(cls, jobs: int, free_bytes: int) -> Width:
        """As many as `jobs` and `free_bytes` allow, at least one."""
        free = max(0, free_bytes - _RESERVE_BYTES)
        jobs = max(1, min(jobs, free // _LIGHT_BYTES))
        heavy = (free - jobs * _LIGHT_BYTES) // (_HEAVY_BYTES - _LIGHT_BYTES)
        return cls(jobs, max(1, min(jobs, heavy)))


def run_batch(
    pending: Sequence[Pending], terms: Terms, cache: BuildCache, *, jobs: int, on_done: Callable[[BuildResult], None]
) -> None:
    """Make all attempts that are needed; `on_done` is called in this thread with each result as it comes."""
    folder = cache.temporary("work-batch")
    try:
        (folder / "terms.json").write_text(json.dumps(terms.to_json()))
        for number, one in enumerate(pending):
            (folder / f"{number}.request").write_text(json.dumps(one.request.to_json()))
        left = dict(enumerate(pending))

        def report(number: int) -> None:
            path = folder / f"{number}.result"
            if number in left and path.exists():
                left.pop(number)
                on_done(BuildResult.from_json(json.loads(path.read_text())))

        width = Width.of_machine(jobs, available_memory_bytes())
        ninja = shutil.which("ninja", path=f"{Path(sys.executable).parent}{os.pathsep}{terms.toolchain.path}")
        said = ""
        if ninja is not None and len(pending) > 1:
            (folder / "build.ninja").write_text(ninja_file(pending, folder, width))
            said = _run_ninja(ninja, folder, width, terms.toolchain.path, report)
        else:
            _run_threads(pending, folder, width, report)
        for number in list(left):
            report(number)
        for one in left.values():
            log = clip(f"the build job ended without a word\n{said}")
            on_done(BuildResult(one.request.key, "infra_error", log=log))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def ninja_file(pending: Sequence[Pending], folder: Path, width: Width) -> str:
    """The text of build.ninja: a chain of edges for each request, those with torch's own headers in a pool."""
    lines = ["pool heavy", f"  depth = {width.heavy}"]
    lines += ["rule attempt", "  command = $attempt", "  description = $number"]
    for number, one in enumerate(pending):
        before = ""
        for tier in one.tiers:
            command = shlex.join(_command(folder, number, tier, one.tiers)).replace("$", "$$").replace("\n", " ")
            result = shlex.quote(str(folder / f"{number}.result")).replace("$", "$$")
            lines.append(f"build {number}.{tier}: attempt{before}")
            lines.append(f"  attempt = [ -e {result} ] || exec {command}")
            lines.append(f"  number = {number}")
            lines += ["  pool = heavy"] if tier != "light" else []
            before = f" {number}.{tier}"
    return "\n".join([*lines, ""])


def _command(folder: Path, number: int, tier: str, tiers: Sequence[str]) -> list[str]:
    paths = [str(folder / name) for name in ("terms.json", f"{number}.request", f"{number}.result")]
    return [sys.executable, "-I", "-S", "-c", _JOB, *paths, tier, "last" if tier == tiers[-1] else "more"]


def _environment(path: str) -> dict[str, str]:
    return {"PATH": path, "LC_ALL": "C", "NINJA_STATUS": ""}


def _run_ninja(ninja: str, folder: Path, width: Width, path: str, report: Callable[[int], None]) -> str:
    """Run the batch; returns the end of what ninja printed."""
    said: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _TIED, ninja, "-k", "0", "-j", str(width.jobs), "-C", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_environment(path),
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:  # ninja names each edge when it has ended
                said = [*said[-50:], line]
                if line.strip().isdecimal():
                    report(int(line))
        except BaseException:
            process.terminate()  # ninja hands it on to its jobs, and those to their compilers
            raise
    return "".join(said)


def _run_threads(pending: Sequence[Pending], folder: Path, width: Width, report: Callable[[int], None]) -> None:
    heavy = threading.Semaphore(width.heavy)
    stopped = threading.Event()

    def attempts(number: int) -> int:
        for tier in pending[number].tiers:
            if stopped.is_set() or (folder / f"{number}.result").exists():
                break
            with contextlib.nullcontext() if tier == "light" else heavy:
                process = subprocess.Popen(
                    _command(folder, number, tier, pending[number].tiers),
                    stdin=subprocess.DEVNULL,
                    env=_environment(""),
                )
                try:
                    while process.poll() is None:
                        if stopped.is_set():
                            process.terminate()
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            process.wait(0.5)
                except BaseException:
                    process.terminate()
                    process.wait()
                    raise
        return number

    with ThreadPoolExecutor(max_workers=width.jobs, thread_name_prefix="build") as pool:
        try:
            for future in as_completed([pool.submit(attempts, number) for number in range(len(pending))]):
                report(future.result())
        except BaseException:
            stopped.set()
            raise
