"""Scores of an evaluation: fast_p with intervals.

fast_p = (1/N) * #(correct and honest and speedup > p), strict, N = all problems of the level, as KernelBench defines it
(arXiv 2502.10517, section 4). A problem without a kernel counts as a failure, never as missing; one whose
attempt failed through our own fault (INFRA_) is left out by the caller and shown apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Two-sided 95 % quantile of the normal distribution.
_Z95 = 1.959963984540054


@dataclass(frozen=True)
class Outcome:
    """What scoring needs to know of one problem's sample."""

    level: int
    number: int
    correct: bool
    honest: bool
    speedup: float | None  #: None when it was not timed
    speedup_low: float | None = None


@dataclass(frozen=True)
class Score:
    """One fast_p of one level."""

    level: int
    p: float
    passed: int
    problems: int
    rate: float
    low: float  #: Wilson 95 % interval
    high: float


def wilson(passed: int, total: int) -> tuple[float, float]:
    """Wilson score interval (95 %) of a rate (Wilson, JASA 1927).

    Raises:
        ValueError: `total` is not positive or `passed` is outside 0..total.
    """
    if total <= 0 or not 0 <= passed <= total:
        raise ValueError(f"a rate needs 0 <= passed <= total and total > 0, got {passed} of {total}")
    rate, z2 = passed / total, _Z95**2
    middle = (rate + z2 / (2 * total)) / (1 + z2 / total)
    half = _Z95 / (1 + z2 / total) * math.sqrt(rate * (1 - rate) / total + z2 / (4 * total**2))
    # At the ends one bound is the rate itself; rounding must not move it past.
    return (0.0 if passed == 0 else middle - half), (1.0 if passed == total else middle + half)


def fast_p(outcomes: Iterable[Outcome], p: float, *, at_lower_bound: bool = False) -> dict[int, Score]:
    """fast_p by level, over one sample per problem.

    A correct, honest sample without a time passes only p = 0.

    Args:
        outcomes: exactly one for each problem of the evaluation.
        p: the speedup to exceed, strictly.
        at_lower_bound: compare the lower end of the interval instead of the point estimate.

    Raises:
        ValueError: a problem appears twice.
    """
    by_level: dict[int, list[Outcome]] = {}
    seen: set[tuple[int, int]] = set()
    for one in outcomes:
        if (one.level, one.number) in seen:
            raise ValueError(f"level {one.level} problem {one.number} appears twice")
        seen.add((one.level, one.number))
        by_level.setdefault(one.level, []).append(one)
    return {level: _score(level, rows, p, at_lower_bound) for level, rows in sorted(by_level.items())}


def _score(level: int, rows: Sequence[Outcome], p: float, at_lower_bound: bool) -> Score:
    def passes(one: Outcome) -> bool:
        value = one.speedup_low if at_lower_bound else one.speedup
        return one.correct and one.honest and (p <= 0 if value is None else value > p)

    passed = sum(passes(one) for one in rows)
    low, high = wilson(passed, len(rows))
    return Score(level, p, passed, len(rows), passed / len(rows), low, high)
