"""Every hostile candidate is contained and gets the verdict that its file names; honest ones are not accused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from arena_helpers import TANH, run

from dice_core.arena import sandbox
from dice_core.lake.attempts import AttemptFile
from dice_core.records import Verdict

CANDIDATES = sorted((Path(__file__).parent / "candidates").glob("*.py"))
#: Isolation level from which a candidate's expected verdict holds, where it is not the lowest.
NEEDS = {"writes_outside": "landlock", "runs_a_program": "landlock", "uses_the_network": "netns"}


def expected(path: Path) -> set[str]:
    found = re.search(r"^Expected: (.+)$", path.read_text(), re.M)
    assert found, f"{path} names no expected verdict"
    return set(found[1].split())


@pytest.fixture(scope="module")
def level() -> str:
    return sandbox.isolation_level()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AttemptFile]:
    """All candidates, evaluated in one run; a canary secret is in the judge's own environment."""
    folder = tmp_path_factory.mktemp("hostile")
    os.environ["DICE_CANARY"] = "secret"
    try:
        files = run(folder, *((TANH, path.read_text()) for path in CANDIDATES), load_timeout_s=4.0, call_timeout_s=3.0,
                    memory_bytes=1 << 30)
    finally:
        del os.environ["DICE_CANARY"]
    left = [
        link for link in Path("/proc").glob("[0-9]*/cwd")
        if str(folder) in (os.readlink(link) if os.access(link, os.R_OK) else "")
    ]
    assert left == [], "candidates left processes behind"
    assert list((folder / "scratch").iterdir()) == [], "candidates left files behind"
    return {path.stem: one for path, one in zip(CANDIDATES, files, strict=True)}


@pytest.mark.parametrize("path", CANDIDATES, ids=lambda path: path.stem)
def test_verdict(path: Path, outcomes: dict[str, AttemptFile], level: str) -> None:
    needed = NEEDS.get(path.stem, "rlimits")
    if not sandbox.at_least(level, needed):
        pytest.skip(f"isolation here is only {level}, this holds at {needed}")
    attempt = outcomes[path.stem].attempt
    assert attempt.verdict.value in expected(path), attempt.evidence


def test_exit_is_told_with_its_stage(outcomes: dict[str, AttemptFile]) -> None:
    for name in ("exits_with_os_exit", "exits_in_c"):
        assert "process exited (code 0) during trial 0" in outcomes[name].attempt.evidence["error"]


def test_only_correct_candidates_have_a_speedup(outcomes: dict[str, AttemptFile]) -> None:
    for name, one in outcomes.items():
        assert (one.attempt.speedup is not None) == (one.attempt.verdict.value == "CORRECT"), name


def test_a_clock_patched_in_the_harness_gains_nothing(outcomes: dict[str, AttemptFile]) -> None:
    """It shows a fiftieth of the time. On a machine too busy to prove the lie, the judge's clock scores."""
    attempt = outcomes["patches_harness_clock"].attempt
    assert attempt.verdict is Verdict.TIMING_DISAGREE or attempt.basis == "end_to_end"
    assert attempt.speedup_low is None or attempt.speedup_low < 1.3


def test_a_stopped_clock_gains_nothing(outcomes: dict[str, AttemptFile]) -> None:
    attempt = outcomes["patches_clock"].attempt
    assert attempt.speedup is None or attempt.speedup < 0.6  # it does the work three times


def test_error_text_is_kept(outcomes: dict[str, AttemptFile]) -> None:
    assert "no kernel image" in outcomes["raises"].attempt.evidence["error"]
