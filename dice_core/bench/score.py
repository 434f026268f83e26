"""Scores of an evaluation: fast_p with intervals, in three views.

fast_p = (1/N) * #(correct and speedup > p), strict, N = all problems of the level, as KernelBench defines it
(arXiv 2502.10517, section 4). A problem without a kernel counts as a failure, never as missing; one whose
attempt failed through our own fault (INFRA_) is left out by the caller and shown apart.

- `all`: correct by KernelBench's own comparison. A correct kernel without a time passes no p, also not 0, as there.
- `discriminating`: correct and honest by our verdict, over the problems on which KernelBench's comparison can tell a
  kernel from zeros, a constant, another input's answer or other weights.
- `repaired`: correct and honest by our verdict, whose inputs and weights repair most of the others, over all problems.

`sql/reports/rpt_score.sql` computes the same from the lake.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

VIEWS = ("all", "discriminating", "repaired")
#: Thresholds that KernelBench's analysis prints.
THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
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
    kernelbench_correct: bool = False
    discriminating: bool = True  #: as far as known

    def right(self, view: str) -> bool:
        """Whether the kernel is right in this view."""
        return self.kernelbench_correct if view == "all" else self.correct and self.honest


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


def fast_p(
    outcomes: Iterable[Outcome], p: float, *, view: str = "repaired", at_lower_bound: bool = False
) -> dict[int, Score]:
    """fast_p by level, over one sample per problem.

    Args:
        outcomes: exactly one for each problem of the evaluation.
        p: the speedup to exceed, strictly.
        view: one of `VIEWS`. A level without a problem in the view is absent.
        at_lower_bound: compare the lower end of the interval instead of the point estimate.

    Raises:
        ValueError: a problem appears twice, or there is no such view.
    """
    if view not in VIEWS:
        raise ValueError(f"no view {view!r}: one of {', '.join(VIEWS)}")
    by_level: dict[int, list[Outcome]] = {}
    seen: set[tuple[int, int]] = set()
    for one in outcomes:
        if (one.level, one.number) in seen:
            raise ValueError(f"level {one.level} problem {one.number} appears twice")
        seen.add((one.level, one.number))
        if view != "discriminating" or one.discriminating:
            by_level.setdefault(one.level, []).append(one)
    return {level: _score(level, rows, p, view, at_lower_bound) for level, rows in sorted(by_level.items())}


def _score(level: int, rows: Sequence[Outcome], p: float, view: str, at_lower_bound: bool) -> Score:
    def passes(one: Outcome) -> bool:
        value = one.speedup_low if at_lower_bound else one.speedup
        return one.right(view) and value is not None and value > p

    passed = sum(passes(one) for one in rows)
    low, high = wilson(passed, len(rows))
    return Score(level, p, passed, len(rows), passed / len(rows), low, high)
