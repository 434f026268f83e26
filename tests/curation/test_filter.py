from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dice_core.curation.speedup_filter import Measurement, decide, latest_measurements
from dice_core.errors import UsageError
from dice_core.records import Attempt, Honesty, TrainingRecord, Verdict

MakeRecord = Callable[..., TrainingRecord]

GOOD = Measurement(
    attempt_id="att_1",
    problem_id="prb_1",
    kernel_id="krn_1",
    environment_id="env_1",
    device="cpu",
    verdict=Verdict.CORRECT,
    honesty=Honesty.OWN,
    speedup=2.4,
    speedup_low=2.0,
    speedup_high=2.8,
)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({}, "measured_speedup"),
        ({"honesty": Honesty.MIXED}, "measured_speedup"),
        ({"speedup_low": 1.999}, "below_threshold"),
        ({"verdict": Verdict.INCORRECT_NUMERICAL}, "incorrect"),
        ({"verdict": Verdict.CONTRACT_VIOLATION}, "incorrect"),
        ({"honesty": Honesty.LIBRARY}, "deceptive"),
        ({"honesty": Honesty.NONE}, "deceptive"),
        ({"speedup": None, "speedup_low": None, "speedup_high": None}, "no_interval"),
    ],
)
@pytest.mark.parametrize("evidence", ["measured", "auto"])
def test_a_measurement_decides(make_record: MakeRecord, evidence: Any, change: dict[str, Any], rule: str) -> None:
    decision = decide(make_record(0, claimed_speedup=100.0), replace(GOOD, **change), evidence)
    assert (decision.rule, decision.verdict) == (rule, "keep" if rule == "measured_speedup" else "drop")
    assert "measured" in decision.reason and "att_1" in decision.reason


@pytest.mark.parametrize(("claim", "rule"), [(2.0, "claimed_speedup"), (1.99, "below_threshold"), (None, "no_claim")])
@pytest.mark.parametrize("evidence", ["claimed", "auto"])
def test_a_claim_decides_where_nothing_was_measured(
    make_record: MakeRecord, evidence: Any, claim: float | None, rule: str
) -> None:
    decision = decide(make_record(0, claimed_speedup=claim), None, evidence)
    assert decision.rule == rule
    assert "claimed" in decision.reason


def test_claimed_evidence_ignores_measurements(make_record: MakeRecord) -> None:
    slow = replace(GOOD, speedup_low=0.1)
    assert decide(make_record(0), slow, "claimed").rule == "claimed_speedup"


@pytest.mark.parametrize("verdict", [Verdict.INFRA_ERROR, Verdict.INFRA_TIMEOUT])
def test_our_own_failures_never_count_against_a_row(make_record: MakeRecord, verdict: Verdict) -> None:
    failed = replace(GOOD, verdict=verdict, speedup=None, speedup_low=None, speedup_high=None)
    held = decide(make_record(0), failed, "measured")
    assert (held.rule, held.verdict) == ("infra_retry", "drop")
    assert "not measured (infra)" in held.reason
    auto = decide(make_record(0), failed, "auto")
    assert (auto.rule, auto.verdict) == ("claimed_speedup", "keep")
    assert verdict in auto.reason


def test_measured_evidence_needs_a_measurement(make_record: MakeRecord) -> None:
    assert decide(make_record(0), None, "measured").rule == "not_measured"


def test_the_threshold_is_an_option(make_record: MakeRecord) -> None:
    assert decide(make_record(0, claimed_speedup=1.5), None, "auto", 1.5).verdict == "keep"
    assert decide(make_record(0), replace(GOOD, speedup_low=2.5), "auto", 3.0).rule == "below_threshold"


def test_unknown_evidence_is_refused(make_record: MakeRecord) -> None:
    bad: Any = "rumour"
    with pytest.raises(UsageError, match="rumour"):
        decide(make_record(0), None, bad)


def _attempt(name: str, verdict: Verdict, started_at: str) -> Attempt:
    return Attempt(
        attempt_id=name,
        kernel_id="krn_1",
        problem_id="prb_1",
        environment_id="env_1",
        protocol_version=1,
        plan="quick",
        device="cpu",
        ordinal=0,
        seed_commitment="",
        seed="",
        verdict=verdict,
        honesty=Honesty.OWN,
        started_at=started_at,
        ended_at=started_at,
        stages={},
        evidence={},
    )


def test_the_latest_real_attempt_is_the_measurement() -> None:
    attempts = [
        _attempt("att_b", Verdict.CORRECT, "2026-01-02T00:00:00Z"),
        _attempt("att_a", Verdict.TIMEOUT, "2026-01-01T00:00:00Z"),
        _attempt("att_c", Verdict.INFRA_ERROR, "2026-01-03T00:00:00Z"),
    ]
    for order in (attempts, attempts[::-1]):
        assert latest_measurements(order)["prb_1", "krn_1"].attempt_id == "att_b"
    assert latest_measurements(attempts[2:])["prb_1", "krn_1"].verdict is Verdict.INFRA_ERROR
