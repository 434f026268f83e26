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
from typing import Any

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
        rows: rows of calls of each side.
    """

    name: str
    sizes: tuple[tuple[float, Size], ...]
    extends: bool
    warm_calls: int
    warm_s: float
    warm_limit: int
    rows: int

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


#: Basis of a speedup: device spans; the CPU's clock around single calls; rows of calls with nothing hidden, as the
#: worker's clock saw them; or the same as trusted clocks saw them, where the worker's is not borne out.
DEVICE, HOST, END_TO_END, JUDGE = "device", "host", "end_to_end", "judge"

PLANS = {
    "quick": Plan("quick", ((math.inf, Size(6, 3)),), False, 3, 0.01, 10, 5),
    "standard": Plan(
        "standard", ((1.0, Size(20, 10)), (20.0, Size(12, 5)), (math.inf, Size(8, 3))), True, 5, 0.05, 25, 8
    ),
}
#: Half of the interval's width, relative; above it the standard plan doubles its blocks, once.
MAX_HALF_WIDTH = 0.02
#: A single call that takes less than this share of its floor did not read its inputs, or was not measured rightly.
FLOOR_SHARE = 0.9
#: Calls shorter than this are batched, until a sample lasts `BATCH_TARGET_US`.
BATCH_BELOW_US = 20.0
BATCH_TARGET_US = 200.0
MAX_BATCH = 64
#: A row of calls lasts about this long, so that the cost of one exchange between processes (0.1-0.4 ms, which varies)
#: is small beside it.
ROW_TARGET_US = 4000.0
MAX_ROW = 128
_ROW_MOST_US = 100_000.0
#: Device spin in front of a sample: this many times the host time that launching took, within these bounds.
_SPIN_FACTOR = 1.5
_SPIN_LEAST_US = 100.0
_SPIN_MOST_US = 20_000.0


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


def by_block(samples: Sequence[TimingSample], side: str, basis: str) -> dict[int, list[float]]:
    """Block -> times per call of one side in the samples of a basis, without warm-ups."""
    if basis in (END_TO_END, JUDGE):
        return {
            number: [row.eager_us if side == "eager" else row.judged_us if basis == JUDGE else row.claimed_us]
            for number, row in rows_of(samples).items()
        }
    blocks: dict[int, list[float]] = {}
    for sample in samples:
        if sample.side == side and sample.counts_for(basis):
            blocks.setdefault(sample.block, []).append(sample.call_us)
    return blocks


def rows_of(samples: Sequence[TimingSample]) -> dict[int, Row]:
    """The rows of a measurement by number, those of the warm-up left out."""
    sides: dict[str, dict[int, TimingSample]] = {"eager": {}, "candidate": {}}
    for sample in samples:
        if sample.counts_for(END_TO_END):
            sides[sample.side][sample.block] = sample
    return {
        number: Row(ours.batch, eager.host_us, eager.judge_us or 0.0, ours.host_us, ours.judge_us or 0.0)
        for number, eager in sides["eager"].items()
        for ours in (sides["candidate"].get(number),) if ours is not None
    }


def median_us(samples: Sequence[TimingSample], side: str, basis: str) -> float:
    """Median time per call of one side over all its samples of a basis, warm-ups left out."""
    return statistics.median(time for times in by_block(samples, side, basis).values() for time in times)


def measured(samples: Sequence[TimingSample], basis: str) -> Speedup:
    """Speedup from the samples of a basis."""
    return speedup(by_block(samples, "eager", basis), by_block(samples, "candidate", basis))


def floor_us(input_bytes: int, output_bytes: int, device: Mapping[str, Any]) -> float:
    """Least time in which a device can read all inputs once and write what its cache cannot hold of the outputs.

    Args:
        input_bytes: of one call.
        output_bytes: likewise.
        device: `peak_bytes_per_us` of its memory and `l2_bytes`.

    Returns:
        0.0 where the peak is not known. A kernel that rightly leaves inputs unread may stay below.
    """
    peak = float(device.get("peak_bytes_per_us", 0.0))
    moved = input_bytes + max(0, output_bytes - int(device.get("l2_bytes", 0)))
    return moved / peak if peak > 0.0 else 0.0


def spin_us(launch_us: float, batch: int) -> float:
    """Length of the device spin that hides the launching of `batch` calls, given the host time that one takes."""
    return min(_SPIN_MOST_US, max(_SPIN_LEAST_US, _SPIN_FACTOR * launch_us * batch))


def longer_spin_us(spin: float) -> float:
    """The next spin, after one that was too short."""
    return min(_SPIN_MOST_US, _SPIN_FACTOR * spin)


def row_calls(eager_us: float, candidate_us: float) -> int:
    """Calls in a row, given both times from end to end: enough of the shorter, not too many of the baseline's."""
    wanted = math.ceil(ROW_TARGET_US / max(min(eager_us, candidate_us), 1.0))
    return max(1, min(MAX_ROW, wanted, math.ceil(_ROW_MOST_US / max(eager_us, 1.0))))


class ImpossibleTime(Exception):
    """A worker's time that no clock can have shown."""


def check_possible(samples: Sequence[TimingSample], judge_us: float) -> None:
    """Hold the samples of one request against the judge's clock around it.

    Raises:
        ImpossibleTime: a time below a clock's step, or more time than there was, whatever the machine's load.
    """
    for sample in samples:
        clocks = [sample.host_us] if sample.device_us is None else [sample.host_us, sample.device_us]
        if min(clocks) < _LEAST_US:
            raise ImpossibleTime(f"the {sample.side}'s side reports {min(clocks):.3g} us, less than a clock's step")
    host_us = sum(sample.host_us for sample in samples)
    if host_us > judge_us + _CLOCK_STEP_US:
        raise ImpossibleTime(
            f"the {samples[0].side}'s side reports {host_us:.0f} us inside a request of {judge_us:.0f} us")


_CLOCK_STEP_US = 50.0
#: Of a sample, by any clock. Handing over a call takes more on the host, and the device's events have coarser steps.
_LEAST_US = 0.05


@dataclass(frozen=True)
class Row:
    """One row of calls of each side, next to each other in time. Microseconds for the whole row."""

    calls: int
    eager_host_us: float  #: by the referee's clock, which is trusted
    eager_judge_us: float  #: by the judge's, around the whole exchange
    candidate_host_us: float  #: by the worker's clock: a claim
    candidate_judge_us: float

    @property
    def eager_us(self) -> float:
        """Time per call of the baseline."""
        return self.eager_host_us / self.calls

    @property
    def claimed_us(self) -> float:
        """Time per call of the candidate by the worker's clock."""
        return self.candidate_host_us / self.calls

    @property
    def judged_us(self) -> float:
        """Time per call of the candidate that counts where its own clock is not borne out: never less than it says."""
        return max(self.claimed_us, self.candidate_us)

    @property
    def candidate_us(self) -> float:
        """Time per call of the candidate by trusted clocks alone.

        Both sides make the same exchange, so what the judge sees more on the candidate's side is the difference of the
        calls, wherever in the exchange the work was done: before the clock started, inside it, or after it stopped.
        """
        return (self.eager_host_us + self.candidate_judge_us - self.eager_judge_us) / self.calls


#: Tolerances of the judge's clock against a claim: a share of it, and microseconds an exchange.
_CLAIM_SHARE = 1.10
_EXCHANGE_US = 100.0
#: A claim about single calls scores up to this share and this many microseconds under the time from end to end. On CUDA
#: launching takes its time and is no part of the kernel; on the CPU exchanges differ by a microsecond a call. What is
#: not borne out scores from end to end. (Idea: host-bound rules of kernel evaluators, device against wall time.)
_BASIS_SHARE = {"cuda": 1.5, "cpu": 1.15}
_BASIS_US = {"cuda": 30.0, "cpu": 1.0}


@dataclass(frozen=True)
class Proof:
    """What the rows say about a candidate's claims.

    Attributes:
        low_us, us, high_us: the candidate's time per call from end to end, by trusted clocks: median, and an interval
            that needs no assumption about the noise (order statistics, at least 90%).
        claimed_row_us: the same by the worker's clock, median.
        lie: why the worker's clock cannot be believed; None when it can.
        borne_out: whether the claim about single calls agrees with the judge's clock. If not, it does not score.
        row_borne_out: whether the claim about rows does. If not, rows count as trusted clocks saw them.
    """

    low_us: float
    us: float
    high_us: float
    claimed_row_us: float
    lie: str | None
    borne_out: bool
    row_borne_out: bool


def proof(rows: Sequence[Row], claimed_us: float, device: str) -> Proof:
    """Hold a candidate's claims against the judge's clock.

    To call a clock a liar takes the lower end of the interval; to let a claim about single calls score, the median has
    to agree with it.

    Args:
        rows: at least two.
        claimed_us: median time of a single call as the worker reported it.
        device: `cuda` or `cpu`.
    """
    times = sorted(row.candidate_us for row in rows)
    usual, cut = statistics.median(times), _cut(len(times))
    claimed_row_us = statistics.median(row.claimed_us for row in rows)
    low, calls = times[cut], rows[0].calls
    lie = None
    most_us = _CLAIM_SHARE * claimed_row_us + _EXCHANGE_US / calls
    if low > most_us:
        lie = (f"the worker reports {claimed_row_us:.1f} us a call in rows of {calls}, the judge's clock says at least "
               f"{low:.1f} us")
    borne_out = usual <= _BASIS_SHARE[device] * claimed_us + _BASIS_US[device]
    return Proof(low, usual, times[-1 - cut], claimed_row_us, lie, borne_out, usual <= most_us)


def _cut(count: int) -> int:
    """How many of `count` sorted values lie on each side outside an interval of their median of at least 90%."""
    cut, tail = 0, 0.5**count
    while True:
        tail += math.comb(count, cut + 1) * 0.5**count
        if 2.0 * tail > 0.1:
            return cut
        cut += 1
