"""What became of one candidate, and the verdict that an ended process means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dice_core.arena.children import ChildDied, ChildFailed, ChildTimeout
from dice_core.arena.timing import Speedup
from dice_core.records import Honesty, TimingSample, Verdict


@dataclass
class Outcome:
    """What the judge decided, and on what."""

    verdict: Verdict
    honesty: Honesty = Honesty.UNKNOWN
    stages: dict[str, float] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    samples: list[TimingSample] = field(default_factory=list)
    basis: str | None = None
    speedup: Speedup | None = None
    kernelbench_correct: bool | None = None
    blames_device: bool = False  #: the worker said so: only its word, a candidate may have put it there


def verdict_of(error: Exception) -> tuple[Verdict, str]:
    """Verdict and text for the way in which a worker ended."""
    if isinstance(error, ChildFailed):
        verdicts = {"load": Verdict.LOAD_ERROR, "oom": Verdict.OUT_OF_MEMORY, "unsupported": Verdict.CONTRACT_VIOLATION,
                    "device": Verdict.INFRA_ERROR}
        return verdicts.get(error.category, Verdict.RUNTIME_ERROR), error.text
    if isinstance(error, ChildTimeout):
        return Verdict.TIMEOUT, str(error)
    if isinstance(error, ChildDied):
        return (Verdict.TIMEOUT if "SIGXCPU" in error.status else Verdict.RUNTIME_ERROR), str(error)
    return Verdict.CONTRACT_VIOLATION, f"protocol: {error}"
