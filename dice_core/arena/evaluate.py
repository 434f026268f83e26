"""The arena's one entry: evaluate work items on this machine, one durable attempt file for each.

Order: what is done already is left out; every candidate is captured and compiled, in parallel; then, with nothing
else running, candidates are checked and timed one at a time, grouped by problem. An attempt's file is written the
moment it is decided, so a run that is killed at any point goes on where it was.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dice_core.arena.run import ArenaRun, BuildProgress, Case
from dice_core.arena.scratch import scratch_folder
from dice_core.arena.timing import plan_named
from dice_core.arena.toolchain import DEFAULT_PATH
from dice_core.errors import UsageError
from dice_core.lake.attempts import AttemptFile, finished_attempts, write_attempt
from dice_core.records import Environment, WorkItem


@dataclass(frozen=True)
class ArenaConfig:
    """How to evaluate. Times in seconds, memory in bytes."""

    device: str  #: `cpu` or `cuda`
    cache_dir: Path  #: compiled kernels
    plan: str = "standard"  #: the plan that all items must name
    build_jobs: int | None = None
    build_deadline_s: float = 300.0
    load_timeout_s: float = 60.0
    check_timeout_s: float = 120.0
    call_timeout_s: float = 30.0
    memory_bytes: int = 8 << 30  #: of each child, on the CPU
    cpu_threads: int = 1
    required_isolation: str = "rlimits"
    base_path: str = DEFAULT_PATH  #: PATH for compilers
    scratch_dir: Path | None = None  #: for private folders of children; the system's temporary folder by default
    kernel_evidence: bool = False  #: on CUDA: list launched kernels of correct, faster candidates
    arch: str | None = None  #: GPU architecture to compile for; found on the device by default
    #: Added to the environment of all children, CUDA_VISIBLE_DEVICES say.
    child_environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluationSummary:
    """What one call of `evaluate` did."""

    started: int  #: attempts made in this call
    skipped: int  #: items that were done already
    verdicts: dict[str, int]
    paths: tuple[Path, ...]
    seconds: float


def evaluate(
    items: Sequence[WorkItem], attempts_dir: Path, config: ArenaConfig, environment: Environment, *,
    skip: Container[str] = (), on_result: Callable[[AttemptFile], None] | None = None,
    on_build: BuildProgress | None = None,
) -> EvaluationSummary:
    """Evaluate every item that has no attempt file yet.

    Args:
        items: what to evaluate.
        attempts_dir: where attempt files are and go.
        config: how.
        environment: what this machine is; part of every attempt's id.
        skip: attempt ids that are done elsewhere (in the lake, say).
        on_result: called with each attempt after its file is durable.
        on_build: called as captures and compilations proceed.

    Raises:
        UsageError: an item is for another device or plan than `config`.
        UnfitError: the device, the compiler or the required isolation is not there.
    """
    begin = time.monotonic()
    _check_items(items, config)
    attempts_dir.mkdir(parents=True, exist_ok=True)
    done = finished_attempts(attempts_dir)
    todo: dict[str, Case] = {}
    for item in items:
        attempt_id = item.attempt_id(environment.environment_id)
        if attempt_id not in done and attempt_id not in skip:
            todo.setdefault(attempt_id, Case(item, attempt_id))
    paths: list[Path] = []
    counts: Counter[str] = Counter()
    if todo:
        with scratch_folder(config.scratch_dir) as scratch:
            run = ArenaRun(config, environment, scratch)
            try:
                run.build(list(todo.values()), on_build)
                for content in run.attempts(list(todo.values())):
                    paths.append(write_attempt(attempts_dir, content))
                    counts[content.attempt.verdict.value] += 1
                    if on_result is not None:
                        on_result(content)
            finally:
                run.close()
    return EvaluationSummary(
        len(todo), len(items) - len(todo), dict(counts), tuple(paths), time.monotonic() - begin)


def _check_items(items: Sequence[WorkItem], config: ArenaConfig) -> None:
    plan_named(config.plan)
    for number, item in enumerate(items):
        if item.device != config.device:
            raise UsageError(f"item {number} is for device {item.device!r}, this arena measures on {config.device!r}")
        if item.plan != config.plan:
            raise UsageError(f"item {number} names plan {item.plan!r}, the configuration {config.plan!r}")
