"""Timing plans and the statistic on paired blocks. Pure numbers: no torch, no processes.

Blocks of candidate and baseline alternate A B B A, so that slow drift of the machine cancels. Per block the medians
of both sides give d = log(baseline) - log(candidate); the speedup is exp(mean d) with Student's t interval over
blocks. Method: paired designs as in Fleming & Wallace (CACM 1986, geometric means of ratios) with the t interval of
Georges et al. (OOPSLA 2007).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dice_core.errors import UsageError
from dice_core.records import TimingSample

#: Two-sided 95% quantiles of Student's t by degrees of freedom 1..30, then selected ones.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)
_T95_ABOVE = ((40, 2.021), (60, 2.000), (120, 1.980))
_T95_LIMIT = 1.960


@dataclass(frozen=True)
class Size:
    """How much is measured: blocks of each side, and samples in a block."""

    blocks: int
    calls: int


@dataclass(frozen=True)
class Plan:
    """A named timing plan.

    Attributes:
        sizes: (baseline time limit in ms, size) in rising order; the first whose limit is above the baseline applies.
        extends: whether blocks are doubled once when the interval is wider than `MAX_HALF_WIDTH`.
        warm_calls, warm_s, warm_limit: warm-up calls: at least this many, at least this long, at most this many.
    """

    name: str
    sizes: tuple[tuple[float, Size], ...]
    extends: bool
    warm_calls: int
    warm_s: float
    warm_limit: int

    def size(self, baseline_us: float) -> Size:
        """The size for a baseline of this many microseconds per call."""
        for limit_ms, size in self.sizes:
            if baseline_us < limit_ms * 1000.0:
                return size
        return self.sizes[-1][1]

    def warmups(self, baseline_us: float) -> int:
        """Warm-up calls of each side; decided by the baseline alone, so that a candidate cannot influence it."""
        by_time = math.ceil(self.warm_s * 1e6 / max(baseline_us, 1.0))
        return max(self.warm_calls, min(self.warm_limit, by_time))


PLANS = {
    "quick": Plan("quick", ((math.inf, Size(6, 3)),), False, 3, 0.01, 10),
    "standard": Plan(
        "standard", ((1.0, Size(20, 10)), (20.0, Size(12, 5)), (math.inf, Size(8, 3))), True, 5, 0.05, 25
    ),
}
#: Half of the interval's width, relative; above it the standard plan doubles its blocks, once.
MAX_HALF_WIDTH = 0.02
#: Calls shorter than this are batched, until a sample lasts `BATCH_TARGET_US`.
BATCH_BELOW_US = 20.0
BATCH_TARGET_US = 200.0
MAX_BATCH = 64
#: Flag of a sample that the judge's clock does not bear out: kept in the record, not scored.
EXCLUDED = "excluded:bracket"


def plan_named(name: str) -> Plan:
    """The plan of that name.

    Raises:
        UsageError: there is none.
    """
    try:
        return PLANS[name]
    except KeyError:
        raise UsageError(f"unknown timing plan {name!r}: one of {', '.join(PLANS)}") from None


def batch_size(shortest_us: float) -> int:
    """Calls in one sample, given the shorter of both sides' times per call."""
    if shortest_us >= BATCH_BELOW_US:
        return 1
    return min(MAX_BATCH, math.ceil(BATCH_TARGET_US / max(shortest_us, 0.5)))


def t_quantile(degrees: int) -> float:
    """97.5% quantile of Student's t, from a table; between entries the wider one applies.

    Raises:
        ValueError: no degrees of freedom.
    """
    if degrees < 1:
        raise ValueError("an interval needs at least two blocks")
    if degrees <= len(_T95):
        return _T95[degrees - 1]
    wider = _T95[-1]
    for limit, value in _T95_ABOVE:
        if degrees < limit:
            return wider
        wider = value
    return wider if degrees < 1000 else _T95_LIMIT


@dataclass(frozen=True)
class Speedup:
    """Baseline time over candidate time with its 95% interval."""

    point: float
    low: float
    high: float
    n_blocks: int

    @property
    def half_width(self) -> float:
        """Half of the interval's width, relative to the point."""
        return math.sqrt(self.high / self.low) - 1.0


def speedup(baseline: Mapping[int, Sequence[float]], candidate: Mapping[int, Sequence[float]]) -> Speedup:
    """Speedup from the times per call of each block; blocks that only one side has are left out.

    Args:
        baseline: block number -> times of its calls, in one unit, all above zero.
        candidate: the same of the other side.

    Raises:
        ValueError: fewer than two common blocks, or a time that is not above zero.
    """
    differences = []
    for block in sorted(set(baseline) & set(candidate)):
        ours, theirs = statistics.median(baseline[block]), statistics.median(candidate[block])
        if not ours > 0 or not theirs > 0:
            raise ValueError(f"block {block} holds a time that is not above zero")
        differences.append(math.log(ours) - math.log(theirs))
    quantile = t_quantile(len(differences) - 1)
    spread = quantile * statistics.stdev(differences) / math.sqrt(len(differences))
    mean = statistics.fmean(differences)
    return Speedup(math.exp(mean), math.exp(mean - spread), math.exp(mean + spread), len(differences))


def per_call_us(sample: TimingSample) -> float:
    """Scored time of one call: device span on CUDA, host time on the CPU; batches are divided."""
    return (sample.host_us if sample.device_us is None else sample.device_us) / sample.batch


def by_block(samples: Sequence[TimingSample], side: str) -> dict[int, list[float]]:
    """Block -> times per call of one side, without warm-ups and samples that are excluded."""
    blocks: dict[int, list[float]] = {}
    for sample in samples:
        if sample.side == side and not sample.warmup and EXCLUDED not in sample.flags:
            blocks.setdefault(sample.block, []).append(per_call_us(sample))
    return blocks


def median_us(samples: Sequence[TimingSample], side: str) -> float:
    """Median time per call of one side over all its samples, warm-ups left out."""
    return statistics.median(time for times in by_block(samples, side).values() for time in times)


@dataclass(frozen=True)
class Bracket:
    """One sample as both clocks saw it: the judge's around the request, the child's around the call."""

    side: str
    block: int
    outer_us: float
    host_us: float
    device_us: float | None


#: Unexplained time per sample that is tolerated whatever the size of a call: waking a process is not exact.
_BRACKET_SLACK_US = 100.0
_BRACKET_SHARE = 0.3
_CALL_SHARE = 0.2
#: A candidate whose samples are set aside this much more often than the baseline's is not believed at all.
_MAX_EXCESS_SHARE = 0.5


def impossible(brackets: Sequence[Bracket]) -> str | None:
    """A report of the candidate's side that cannot be, whatever the machine's load; None when there is none."""
    for one in brackets:
        if one.side != "candidate":
            continue
        if one.host_us <= 0 or (one.device_us is not None and one.device_us <= 0):
            return "the candidate's side reports a time that is not above zero"
        if one.host_us > one.outer_us + 50.0:
            return f"the candidate's side reports {one.host_us:.0f} us inside a request of {one.outer_us:.0f} us"
    return None


def believable(brackets: Sequence[Bracket]) -> list[bool]:
    """For each sample, whether the judge's clock bears out what the child's says.

    Time that the judge saw and the child did not report is the cost of the exchange. Both sides take the same steps,
    so a sample with more of it than the baseline's usual hides work (a patched clock, work finished after the clock
    stopped), or waited for a processor on a busy machine. Either way it proves nothing and is set aside; what remains
    cannot hide more than the tolerance. The measure is taken from the baseline's side alone, which no candidate can
    influence. On CUDA the same holds for host time outside the device span (work on another stream).
    """
    ours = [one for one in brackets if one.side == "eager"]
    call_us = statistics.median(one.host_us for one in ours)
    limit_us = _limit([one.outer_us - one.host_us for one in ours], call_us)
    good = [one.outer_us - one.host_us <= limit_us for one in brackets]
    if all(one.device_us is not None for one in brackets):
        limit_us = _limit([one.host_us - (one.device_us or 0.0) for one in ours], call_us)
        good = [
            was and one.host_us - (one.device_us or 0.0) <= limit_us for was, one in zip(good, brackets, strict=True)
        ]
    return good


def _limit(unexplained_us: Sequence[float], call_us: float) -> float:
    usual_us = sorted(unexplained_us)[len(unexplained_us) // 10]
    return usual_us + max(_BRACKET_SLACK_US, _BRACKET_SHARE * usual_us, _CALL_SHARE * call_us)


def usable_blocks(brackets: Sequence[Bracket], good: Sequence[bool]) -> set[int]:
    """Blocks in which both sides have a believable sample."""
    found: dict[str, set[int]] = {"eager": set(), "candidate": set()}
    for one, fine in zip(brackets, good, strict=True):
        if fine:
            found[one.side].add(one.block)
    return found["eager"] & found["candidate"]


def disagreement(brackets: Sequence[Bracket], good: Sequence[bool], needed_blocks: int) -> str | None:
    """Why the candidate's side cannot be believed after all its blocks, or None."""
    shares = {
        side: statistics.fmean(not fine for one, fine in zip(brackets, good, strict=True) if one.side == side)
        for side in ("eager", "candidate")
    }
    usable = len(usable_blocks(brackets, good))
    text = (f"the judge's clock bears out {1 - shares['candidate']:.0%} of the candidate's samples and "
            f"{1 - shares['eager']:.0%} of the baseline's")
    if shares["candidate"] - shares["eager"] > _MAX_EXCESS_SHARE:
        return text
    return f"{text}: {usable} usable blocks, {needed_blocks} are needed" if usable < needed_blocks else None
