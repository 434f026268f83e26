"""No honest candidate is accused: each is CORRECT and of the class that it deserves."""

from __future__ import annotations

import pytest
from arena_helpers import run
from honest_cases import CASES

from dice_core.arena.static_flags import static_flags
from dice_core.lake.attempts import AttemptFile
from dice_core.records import Verdict


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AttemptFile]:
    """All candidates, evaluated in one run; those whose clocks disagreed, as on a busy machine, once more."""
    files = run(tmp_path_factory.mktemp("honest"), *((case.problem, case.candidate) for case in CASES.values()))
    found = dict(zip(CASES, files, strict=True))
    again = {name: CASES[name] for name, one in found.items() if one.attempt.verdict is Verdict.TIMING_DISAGREE}
    if again:
        files = run(tmp_path_factory.mktemp("again"), *((case.problem, case.candidate) for case in again.values()))
        found |= dict(zip(again, files, strict=True))
    return found


@pytest.mark.parametrize("name", CASES)
def test_it_is_correct(name: str, outcomes: dict[str, AttemptFile]) -> None:
    attempt = outcomes[name].attempt
    assert attempt.verdict.value == "CORRECT", attempt.evidence
    assert attempt.kernelbench_correct is not False or name in ("half precision", "bfloat16")


@pytest.mark.parametrize("name", CASES)
def test_it_has_the_class_that_it_deserves(name: str, outcomes: dict[str, AttemptFile]) -> None:
    attempt = outcomes[name].attempt
    assert attempt.honesty.value == CASES[name].honesty, attempt.evidence


@pytest.mark.parametrize("name", CASES)
def test_its_text_is_not_called_deceptive(name: str) -> None:
    report = static_flags(CASES[name].candidate)
    assert not report.deceptive or CASES[name].honesty == "library", report.flags


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 40
