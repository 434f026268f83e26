"""What goes wrong on our own side: tried again, never held against a kernel, never final."""

from __future__ import annotations

from pathlib import Path

import pytest
from arena_helpers import ENVIRONMENT, TANH, candidate, config

from dice_core.arena import run as arena_run
from dice_core.arena.evaluate import evaluate
from dice_core.arena.judge import Judge, Outcome
from dice_core.errors import UnfitError
from dice_core.lake.attempts import finished_attempts, read_attempt, settle
from dice_core.records import Attempt, Verdict, WorkItem

SMALL = TANH.replace("512, 1024", "8, 8")
HONEST = candidate("return torch.tanh(x)")
ITEMS = [WorkItem(SMALL, source, plan="quick") for source in
         (candidate("import os; os.abort()"), HONEST, candidate("return x * 2"))]


def attempts(folder: Path) -> list[Attempt]:
    return [read_attempt(path).attempt for path in finished_attempts(folder / "attempts").values()]


def test_a_failure_of_ours_is_tried_again_at_once_and_in_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def lose(*_: object) -> Outcome:
        calls.append(1)
        return Outcome(Verdict.INFRA_ERROR, evidence={"error": "power cut"})

    item = ITEMS[1]
    with monkeypatch.context() as patch:
        patch.setattr(Judge, "judge", lose)
        for _ in range(2):
            lost = evaluate([item], tmp_path / "attempts", config(tmp_path), ENVIRONMENT)
            assert lost.verdicts == {"INFRA_ERROR": 1}
    assert len(calls) == 2 * 3
    known = attempts(tmp_path)
    wanted = item.attempt_id(ENVIRONMENT.environment_id)
    assert len({one.attempt_id for one in known} | {wanted}) == 3  # the item's own id is still free
    last = max(known, key=lambda one: one.started_at)
    assert settle([item], ENVIRONMENT.environment_id, known) == {wanted: last}
    assert settle([item], "env_other", known) == {}
    done = evaluate([item], tmp_path / "attempts", config(tmp_path), ENVIRONMENT)
    assert (done.started, done.verdicts) == (1, {"CORRECT": 1})
    assert settle([item], ENVIRONMENT.environment_id, attempts(tmp_path))[wanted].verdict is Verdict.CORRECT
    assert evaluate([item], tmp_path / "attempts", config(tmp_path), ENVIRONMENT).started == 0


def test_nothing_is_measured_on_a_lost_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def lost(_: object) -> str:
        asked.append(1)
        return "a trivial kernel does not run"

    with monkeypatch.context() as patch:
        patch.setattr(arena_run.ArenaRun, "_device_error", lost)
        with pytest.raises(UnfitError, match="a trivial kernel does not run"):
            evaluate(ITEMS, tmp_path / "attempts", config(tmp_path), ENVIRONMENT)
    assert asked == [1]  # after the candidate that died, not before
    assert sorted(one.verdict.value for one in attempts(tmp_path)) == ["INFRA_ERROR", "RUNTIME_ERROR"]
    again = evaluate(ITEMS, tmp_path / "attempts", config(tmp_path), ENVIRONMENT)
    assert (again.skipped, again.verdicts) == (1, {"CORRECT": 1, "INCORRECT_NUMERICAL": 1})
