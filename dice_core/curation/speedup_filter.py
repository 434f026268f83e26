"""The 2.0x filter: which evidence a record's speedup rests on, and whether it is enough.

DICE (arXiv:2602.11715) keeps pairs of at least 2.0x over eager PyTorch, because launch overhead and cache state fake
small speedups. *Claimed* is the row's own number. *Measured* is the arena's, and there the lower end of the 95%
interval must reach the threshold. An INFRA_ outcome is ours: it is no measurement and never counts against a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dice_core.errors import UsageError
from dice_core.records import Attempt, Decision, Honesty, TrainingRecord, Verdict

Evidence = Literal["claimed", "measured", "auto"]

DEFAULT_THRESHOLD = 2.0
MEASURED_RULE = "measured_speedup"
CLAIMED_RULE = "claimed_speedup"
#: Verdicts that do not say that the kernel is wrong; they drop a record under a name of their own.
_NOT_WRONG = {Verdict.TIMING_DISAGREE: "timing_disagree", Verdict.TASK_ERROR: "task_error"}


@dataclass(frozen=True)
class Measurement:
    """What one attempt says about one (module, kernel) pair. Speedups are baseline time / candidate time."""

    attempt_id: str
    problem_id: str
    kernel_id: str
    environment_id: str
    device: str
    verdict: Verdict
    honesty: Honesty
    speedup: float | None = None
    speedup_low: float | None = None  #: 95% interval
    speedup_high: float | None = None

    @classmethod
    def from_attempt(cls, attempt: Attempt) -> Measurement:
        """The part of an attempt that the filter reads."""
        return cls(
            attempt_id=attempt.attempt_id,
            problem_id=attempt.problem_id,
            kernel_id=attempt.kernel_id,
            environment_id=attempt.environment_id,
            device=attempt.device,
            verdict=attempt.verdict,
            honesty=attempt.honesty,
            speedup=attempt.speedup,
            speedup_low=attempt.speedup_low,
            speedup_high=attempt.speedup_high,
        )


def latest_measurements(attempts: Iterable[Attempt]) -> dict[tuple[str, str], Measurement]:
    """One measurement for each (problem id, kernel id): the last one started; INFRA_ only where nothing else is."""
    chosen: dict[tuple[str, str], Attempt] = {}
    for attempt in attempts:
        key = (attempt.problem_id, attempt.kernel_id)
        if key not in chosen or _rank(attempt) > _rank(chosen[key]):
            chosen[key] = attempt
    return {key: Measurement.from_attempt(attempt) for key, attempt in chosen.items()}


def decide(
    record: TrainingRecord,
    measured: Measurement | None,
    evidence: Evidence = "auto",
    threshold: float = DEFAULT_THRESHOLD,
    *,
    step: str = "speedup",
) -> Decision:
    """Keep or drop one record by its speedup.

    Args:
        record: the record.
        measured: the arena's word on it, where there is one.
        evidence: `measured`, `claimed`, or `auto` (measured where a measurement exists, claimed otherwise).
        threshold: least speedup; compared with `>=`.
        step: the funnel step that the decision is filed under.

    Returns:
        A decision whose rule is `measured_speedup` or `claimed_speedup` when kept, and otherwise says why not:
        `incorrect`, `timing_disagree`, `task_error`, `deceptive`, `no_interval`, `below_threshold`, `not_measured`,
        `infra_retry`, `no_claim`.

    Raises:
        UsageError: unknown evidence.
    """
    if evidence not in ("claimed", "measured", "auto"):
        raise UsageError(f"evidence {evidence!r}: known are auto, claimed and measured")
    usable = measured is not None and not measured.verdict.is_infra
    if measured is not None and usable and evidence != "claimed":
        rule, verdict, reason = _by_measurement(measured, threshold)
    elif evidence == "measured":
        if measured is None:
            rule, verdict, reason = "not_measured", "drop", "measured: there is no attempt of this kernel"
        else:
            rule, verdict = "infra_retry", "drop"
            reason = f"not measured (infra): {measured.verdict} in {measured.attempt_id}; to be measured again"
    else:
        rule, verdict, reason = _by_claim(record, threshold)
        if measured is not None and evidence == "auto":
            reason += f"; not measured (infra): {measured.verdict} in {measured.attempt_id}"
    return Decision(record.record_id, step, rule, verdict, reason)


def _by_measurement(measured: Measurement, threshold: float) -> tuple[str, str, str]:
    where = f"({measured.attempt_id}, {measured.device})"
    if measured.verdict is not Verdict.CORRECT:
        return _NOT_WRONG.get(measured.verdict, "incorrect"), "drop", f"measured: {measured.verdict} {where}"
    if measured.honesty.is_deceptive:
        return "deceptive", "drop", f"measured: correct, but honesty class {measured.honesty} {where}"
    if measured.speedup is None or measured.speedup_low is None or measured.speedup_high is None:
        return "no_interval", "drop", f"measured: correct, but without a timed speedup {where}"
    numbers = f"measured {measured.speedup:.4g}x [{measured.speedup_low:.4g}, {measured.speedup_high:.4g}]"
    if measured.speedup_low >= threshold:
        return MEASURED_RULE, "keep", f"{numbers}: lower end >= {threshold:g}x, honesty {measured.honesty} {where}"
    return "below_threshold", "drop", f"{numbers}: lower end < {threshold:g}x {where}"


def _by_claim(record: TrainingRecord, threshold: float) -> tuple[str, str, str]:
    if record.claimed_speedup is None:
        return "no_claim", "drop", "claimed: the row states no speedup"
    if record.claimed_speedup >= threshold:
        return CLAIMED_RULE, "keep", f"claimed {record.claimed_speedup:.4g}x >= {threshold:g}x"
    return "below_threshold", "drop", f"claimed {record.claimed_speedup:.4g}x < {threshold:g}x"


def _rank(attempt: Attempt) -> tuple[bool, str, str]:
    return not attempt.verdict.is_infra, attempt.started_at, attempt.attempt_id
