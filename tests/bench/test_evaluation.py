from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dice_core.bench.evaluation import Evaluation, from_candidates, from_pairs
from dice_core.bench.kernelbench import CandidateFile
from dice_core.bench.sidecar import write_sidecar
from dice_core.errors import SourceError, UsageError
from dice_core.records import Attempt, Honesty, Problem, Verdict

PROBLEMS = [Problem("s", 1, n, f"{n}_p", f"class Model: {n}") for n in (1, 2, 3)]


def candidate(number: int, source: str, sample: int = 0) -> CandidateFile:
    return CandidateFile(1, number, sample, source, Path(f"k{number}.py"))


def finished(evaluation: Evaluation, verdict: Verdict = Verdict.CORRECT) -> dict[str, Attempt]:
    return {
        (key := item.attempt_id("env_1")): Attempt(
            key, item.kernel_id, item.problem_id, "env_1", 1, "quick", "cpu", 0, "c", "s", verdict, Honesty.OWN,
            "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", {}, {}, speedup=1.5, speedup_low=1.2, speedup_high=1.7)
        for item in evaluation.items()
    }


def make() -> Evaluation:
    return from_candidates("run", PROBLEMS, [candidate(1, "k"), candidate(2, "k")], plan="quick", device="cpu",
                           kernel_source="folder", reasons={(1, 3): "model gave no code"})


def test_every_problem_counts() -> None:
    evaluation = make()
    tables = evaluation.tables("env_1", "run_1", finished(evaluation))
    assert [r["number"] for r in tables["evaluation_member"]] == [1, 2, 3]
    assert [r["no_kernel_reason"] for r in tables["evaluation_member"]] == ["", "", "model gave no code"]
    counters = {r["name"]: r["value"] for r in tables["counter"]}
    assert counters == {"in": 3, "kept": 2, "out:no_kernel": 1, "out:infra": 0}
    outcomes = evaluation.outcomes("env_1", finished(evaluation))
    assert [o.correct for o in outcomes] == [True, True, False]


def test_the_sidecar_says_what_the_native_file_cannot(tmp_path: Path) -> None:
    evaluation = make()
    attempts = finished(evaluation)
    first = evaluation.items()[0].attempt_id("env_1")
    attempts[first] = replace(attempts[first], kernelbench_correct=True, evidence={
        "traits": [{"trait": "replay_passable", "holds": True, "evidence": 0.1, "tolerance": 1e-4}]})
    content = json.loads(write_sidecar(tmp_path, evaluation, "env_1", attempts, 1).read_text(encoding="utf-8"))
    assert [row["problem_id"] for row in content["samples"]] == [1, 2, 3]
    assert content["samples"][0]["traits"] == {"replay_passable": True}
    assert content["samples"][2]["no_kernel_reason"] == "model gave no code"
    scores = {(s["view"], s["p"], s["at_lower_bound"]): (s["passed"], s["problems"]) for s in content["scores"]}
    assert scores["repaired", 1.0, False] == (2, 3)
    assert scores["repaired", 1.5, False] == (0, 3)  # strictly more than
    assert scores["discriminating", 1.0, True] == (1, 2)
    assert scores["all", 1.0, False] == (1, 3)


def test_an_unfinished_evaluation_is_refused() -> None:
    evaluation = make()
    attempts = finished(evaluation)
    attempts.popitem()
    with pytest.raises(SourceError, match="problem 2 sample 0 has no finished attempt"):
        evaluation.tables("env_1", "run_1", attempts)


def test_what_is_finished_is_an_evaluation_of_its_own() -> None:
    evaluation = make()
    attempts = finished(evaluation)
    assert evaluation.finished_part("env_1", attempts) is evaluation
    attempts.popitem()
    part = evaluation.finished_part("env_1", attempts)
    assert part.name == "run (2 of 3)" and [m.problem.number for m in part.members] == [1, 3]
    # The name is a label of its work items, not a part of their identity: the attempts are still found.
    assert len(part.tables("env_1", "r", attempts)["evaluation_member"]) == 2


def test_a_repeat_is_measured_anew() -> None:
    once, repeat = make(), replace(make(), ordinal=1)
    ids = [{item.attempt_id("env_1") for item in one.items()} for one in (once, repeat)]
    assert not ids[0] & ids[1]
    assert once.evaluation_id("env_1") != repeat.evaluation_id("env_1")
    assert {item.ordinal for item in repeat.items()} == {1}


def test_it_survives_travel() -> None:
    evaluation = make()
    back = Evaluation.from_json(json.loads(json.dumps(evaluation.to_json())))
    assert back == evaluation
    assert back.evaluation_id("env_1") == evaluation.evaluation_id("env_1") != evaluation.evaluation_id("env_2")


def test_the_same_pair_is_measured_once() -> None:
    twice = from_candidates("run", PROBLEMS[:1], [candidate(1, "k", 0), candidate(1, "k", 1)], plan="quick",
                            device="cpu", kernel_source="folder")
    assert len(twice.items()) == 1
    assert len(twice.tables("env_1", "r", finished(twice))["evaluation_member"]) == 2


def test_unknown_problem_and_empty_suite() -> None:
    with pytest.raises(UsageError, match="no level 1 problem 9"):
        from_candidates("r", PROBLEMS, [candidate(9, "k")], plan="quick", device="cpu", kernel_source="f")
    with pytest.raises(UsageError, match="at least one problem"):
        from_candidates("r", [], [], plan="quick", device="cpu", kernel_source="f")


def test_pairs_name_row_and_field() -> None:
    rows = [{"id": 7, "a": "ref", "b": "ker"}, {"id": 8, "a": "ref", "b": " "}]
    good = from_pairs("p", rows[:1], reference_field="a", kernel_field="b", plan="quick", device="cuda", source="f")
    assert good.members[0].problem.name == "7"
    with pytest.raises(SourceError, match="f: row 1: field b holds no text"):
        from_pairs("p", rows, reference_field="a", kernel_field="b", plan="quick", device="cuda", source="f")
