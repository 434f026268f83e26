"""KernelBench's own files: a run folder of candidates, and `eval_results.json`.

Formats as ScalingIntelligence/KernelBench main (2026-03) reads and writes them. Nothing of ours goes into the native
file: raw samples, intervals and evidence are in the lake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from dice_core.arena.timing import HOST, by_block
from dice_core.errors import SourceError, UsageError
from dice_core.files import write_atomic
from dice_core.records import Attempt, TimingSample, Verdict

_KERNEL_NAME = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
#: A verdict before the candidate's module was there counts as not compiled, as KernelBench counts it.
_NOT_COMPILED = (Verdict.COMPILE_ERROR, Verdict.LOAD_ERROR)


@dataclass(frozen=True)
class CandidateFile:
    """One generated kernel of a run folder."""

    level: int
    number: int
    sample_id: int
    source: str
    path: Path


def kernel_file_name(level: int, number: int, sample_id: int) -> str:
    """KernelBench's name for a candidate's file."""
    return f"level_{level}_problem_{number}_sample_{sample_id}_kernel.py"


def read_kernel_folder(folder: Path) -> list[CandidateFile]:
    """All candidates of a run folder, sorted by level, problem and sample.

    Raises:
        UsageError: there is no such folder, or nothing in it has KernelBench's naming.
        SourceError: a candidate is not UTF-8 text.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder of kernels")
    found = []
    for path in sorted(folder.glob("*.py")):
        match = _KERNEL_NAME.fullmatch(path.name)
        if match is None:
            continue
        try:
            source = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise SourceError(f"{path}: byte {error.start} is not UTF-8") from error
        level, number, sample = map(int, match.groups())
        found.append(CandidateFile(level, number, sample, source, path))
    if not found:
        raise UsageError(f"{folder}: no file named level_<L>_problem_<P>_sample_<S>_kernel.py")
    return sorted(found, key=lambda one: (one.level, one.number, one.sample_id))


def eval_result(attempt: Attempt, samples: Sequence[TimingSample], sample_id: int, hardware: str) -> dict[str, Any]:
    """One entry of `eval_results.json` for one attempt.

    `runtime` is the mean of the candidate's timed calls in milliseconds, or -1.0 without timings, as in KernelBench.
    `correctness` is our verdict, not KernelBench's comparison (which the lake keeps as `kernelbench_correct`).
    """
    correct = attempt.verdict is Verdict.CORRECT
    calls_ms = [
        call_us / 1e3 for times in by_block(samples, "candidate", attempt.basis or HOST).values() for call_us in times
    ]
    device = hardware if attempt.device == "cuda" else "cpu"
    metadata: dict[str, Any] = {"hardware": hardware, "device": device, "dice_verdict": attempt.verdict.value,
                                "dice_attempt": attempt.attempt_id}
    message = str(attempt.evidence.get("error") or attempt.evidence.get("reason") or "")
    if attempt.verdict in _NOT_COMPILED:
        metadata["compilation_error"] = message
    elif attempt.verdict in (Verdict.RUNTIME_ERROR, Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY):
        metadata["runtime_error"] = message
    elif not correct:
        metadata["correctness_issue"] = message
    stats: dict[str, Any] = {}
    if correct and calls_ms:
        stats = {"mean": _significant(fmean(calls_ms)), "std": _significant(pstdev(calls_ms)),
                 "min": _significant(min(calls_ms)), "max": _significant(max(calls_ms)),
                 "num_trials": len(calls_ms), "hardware": hardware, "device": device}
    return {"sample_id": sample_id, "compiled": attempt.verdict not in _NOT_COMPILED, "correctness": correct,
            "metadata": metadata, "runtime": stats.get("mean", -1.0), "runtime_stats": stats}


def missing_result(sample_id: int, reason: str, hardware: str) -> dict[str, Any]:
    """The entry of a sample that produced no kernel at all."""
    return {"sample_id": sample_id, "compiled": False, "correctness": False,
            "metadata": {"hardware": hardware, "other_error": reason}, "runtime": -1.0, "runtime_stats": {}}


def write_eval_results(path: Path, entries: Iterable[tuple[int, dict[str, Any]]]) -> Path:
    """Write `(problem number, entry)` pairs of ONE level as KernelBench's `eval_results.json`, sorted, atomically."""
    results: dict[int, list[dict[str, Any]]] = {}
    for number, entry in entries:
        results.setdefault(number, []).append(entry)
    ordered = {str(number): sorted(results[number], key=lambda e: e["sample_id"]) for number in sorted(results)}
    return write_atomic(path, json.dumps(ordered, indent=4))


def read_eval_results(path: Path) -> dict[int, list[dict[str, Any]]]:
    """Read an `eval_results.json`, ours or KernelBench's.

    Raises:
        SourceError: not such a file; names the problem and the field.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: not a readable eval_results.json: {error}") from error
    if not isinstance(raw, dict):
        raise SourceError(f"{path}: the top level must be an object keyed by problem id")
    results: dict[int, list[dict[str, Any]]] = {}
    for key, value in raw.items():
        entries = value if isinstance(value, list) else [value]
        for entry in entries:
            for name in ("sample_id", "compiled", "correctness"):
                if not isinstance(entry, dict) or name not in entry:
                    raise SourceError(f"{path}: problem {key}: an entry has no {name}")
        if not key.isdigit():
            raise SourceError(f"{path}: key {key!r} is not a problem id")
        results[int(key)] = entries
    return results


def _significant(value: float) -> float:
    """Three significant digits, as KernelBench rounds."""
    return float(f"{value:.3g}")
