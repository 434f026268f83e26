"""Numbers of the views against an independent computation from the same raw rows."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dice_core.arena import timing
from dice_core.bench.evaluation import NOT_DISCRIMINATING
from dice_core.bench.score import THRESHOLDS, VIEWS, Outcome, fast_p
from dice_core.lake.attempts import write_attempt
from dice_core.lake.catalog import Lake
from dice_core.lake.publish import publish
from dice_core.records import Verdict


@pytest.fixture
def made() -> ModuleType:
    """The generator of synthetic attempts."""
    return sys.modules["synthetic"]


def test_speedups_recomputed_in_sql_equal_numpy_and_the_arena(filled: Lake) -> None:
    raw = filled.query(
        "SELECT s.*, a.device FROM timing_sample s JOIN attempt a USING (attempt_id) WHERE NOT warmup "
        "AND NOT end_to_end"
    ).to_pylist()
    calls: dict[str, dict[tuple[int, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in raw:
        clock = row["device_us"] if row["device"] == "cuda" else row["host_us"]
        calls[row["attempt_id"]][row["block"], row["side"]].append(clock / row["batch"])
    rows = {row["attempt_id"]: row for row in filled.query("SELECT * FROM fct_speedup").to_pylist()}
    stated = {row["attempt_id"]: row for row in filled.query(
        "SELECT * FROM attempt WHERE speedup IS NOT NULL").to_pylist()}
    assert rows.keys() == calls.keys() == stated.keys()
    assert len(rows) == 72
    for attempt_id, blocks in calls.items():
        d = np.array([
            math.log(np.median(blocks[b, "eager"])) - math.log(np.median(blocks[b, "candidate"]))
            for b in sorted({block for block, _ in blocks})
        ])
        half = stats.t.ppf(0.975, len(d) - 1) * stats.sem(d)
        expected = np.exp([d.mean(), d.mean() - half, d.mean() + half])
        row = rows[attempt_id]
        found = [row["speedup"], row["speedup_low"], row["speedup_high"]]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        arena = stated[attempt_id]
        np.testing.assert_allclose(found, [arena["speedup"], arena["speedup_low"], arena["speedup_high"]], rtol=1e-6)
        assert row["n_blocks"] == len(d)
        for side, column in (("eager", "baseline_us"), ("candidate", "candidate_us")):
            medians = [np.median(times) for (_, one), times in blocks.items() if one == side]
            assert row[column] == pytest.approx(np.median(medians), rel=1e-9)


def test_one_block_gives_a_point_without_an_interval(home: Path, made: ModuleType) -> None:
    new = home / "attempts" / "new"
    one = made.make_attempt(1)
    samples = tuple(s for s in one.samples if s.block == 0)
    write_attempt(new, dataclasses.replace(one, samples=samples))
    with Lake.open(home) as lake:
        publish(lake, new, run_id="r")
        (row,) = lake.query("SELECT * FROM rpt_speedup").to_pylist()
    assert row["speedup"] > 1
    assert (row["speedup_low"], row["speedup_high"], row["is_significant"], row["is_2x"]) == (None, None, False, False)


def test_more_than_200_degrees_of_freedom_use_the_normal_quantile(home: Path, made: ModuleType) -> None:
    new = home / "attempts" / "new"
    one = made.make_attempt(1, blocks=230, repetitions=1)
    write_attempt(new, one)
    with Lake.open(home) as lake:
        publish(lake, new, run_id="r")
        (row,) = lake.query("SELECT * FROM fct_speedup").to_pylist()
    half = (math.log(row["speedup_high"]) - math.log(row["speedup_low"])) / 2
    exact = (math.log(one.attempt.speedup_high) - math.log(one.attempt.speedup_low)) / 2
    assert half == pytest.approx(exact * stats.norm.ppf(0.975) / stats.t.ppf(0.975, 229), rel=1e-5)


def test_warm_ups_and_rows_do_not_count_in_a_speedup_of_single_calls(home: Path, made: ModuleType) -> None:
    new = home / "attempts" / "new"
    one = made.make_attempt(1, device="cpu", repetitions=3)
    spoiled = tuple(dataclasses.replace(s, host_us=s.host_us * 50) if s.warmup or s.end_to_end else s
                    for s in one.samples)
    write_attempt(new, dataclasses.replace(one, samples=spoiled))
    with Lake.open(home) as lake:
        publish(lake, new, run_id="r")
        (row,) = lake.query("SELECT speedup FROM fct_speedup").to_pylist()
    assert spoiled != one.samples
    assert row["speedup"] == pytest.approx(one.attempt.speedup, rel=1e-9)


def wilson(passed: int, total: int) -> tuple[float, float]:
    interval = stats.binomtest(passed, total).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


def test_leaderboard_equals_a_plain_count(filled: Lake) -> None:
    members = filled.query("SELECT * FROM evaluation_member").to_pylist()
    attempts = {row["attempt_id"]: row for row in filled.query("SELECT * FROM attempt").to_pylist()}
    board = filled.query("SELECT * FROM rpt_leaderboard").to_pylist()
    assert len(board) == 2 * 4
    for row in board:
        mine = [m for m in members if m["evaluation_id"] == row["evaluation_id"]
                and (row["level"] is None or m["level"] == row["level"])]
        outcomes = [attempts.get(m["attempt_id"]) for m in mine]
        judged = [a for a in outcomes if a is None or not a["verdict"].startswith("INFRA")]
        correct = [a for a in judged if a is not None and a["verdict"] == "CORRECT"]
        honest = [a for a in correct if a["honesty"] not in ("library", "none")]
        n = len(judged)
        assert (row["n_problems"], row["n_infra"]) == (n, len(outcomes) - n)
        assert row["n_deceptive"] == len(correct) - len(honest)
        assert row["correct_rate"] == pytest.approx(len(correct) / n)
        for p in (0, 1, 2):
            passed = sum(a["speedup"] > p for a in honest)
            assert row[f"n_fast_{p}"] == passed
            assert row[f"fast_{p}"] == pytest.approx(passed / n)
            assert (row[f"fast_{p}_low"], row[f"fast_{p}_high"]) == pytest.approx(wilson(passed, n), abs=1e-6)
            assert row[f"fast_{p}_any"] == pytest.approx(sum(a["speedup"] > p for a in correct) / n)
        for p in (1, 2):
            assert row[f"fast_{p}_low_bound"] == pytest.approx(sum(a["speedup_low"] > p for a in honest) / n)
    assert any(row["n_infra"] for row in board)
    assert any(row["n_deceptive"] for row in board)


def test_scores_in_three_views_equal_the_librarys(filled: Lake) -> None:
    """`rpt_score` against `bench.score`: two implementations of one definition."""
    attempts = {row["attempt_id"]: row for row in filled.query("SELECT * FROM attempt").to_pylist()}
    passable = {row["problem_id"] for row in filled.query("SELECT * FROM problem_trait").to_pylist()
                if row["holds"] and row["trait"] in NOT_DISCRIMINATING}
    board = filled.query("SELECT * FROM rpt_score WHERE level IS NOT NULL").to_pylist()
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    for m in filled.query("SELECT * FROM evaluation_member WHERE sample_id = 0").to_pylist():
        a = attempts.get(m["attempt_id"])
        if a is not None and a["verdict"].startswith("INFRA"):
            continue
        outcomes[m["evaluation_id"]].append(Outcome(
            m["level"], m["number"], a is not None and a["verdict"] == "CORRECT",
            a is not None and a["honesty"] not in ("library", "none"), a and a["speedup"], a and a["speedup_low"],
            a is not None and a["kernelbench_correct"] is True, m["problem_id"] not in passable))
    assert len(board) == 2 * 3 * len(VIEWS) * len(THRESHOLDS)
    for row in board:
        for suffix, bound in (("", False), ("_low_bound", True)):
            score = fast_p(outcomes[row["evaluation_id"]], row["p"], view=row["score_view"], at_lower_bound=bound)
            mine = score[row["level"]]
            assert (row[f"n_passed{suffix}"], row["n_problems"]) == (mine.passed, mine.problems)
            assert [row[f"fast_p{suffix}"], row[f"fast_p{suffix}_low"], row[f"fast_p{suffix}_high"]] == pytest.approx(
                [mine.rate, mine.low, mine.high], abs=1e-9)
    by_view = {view: sum(row["n_problems"] for row in board if row["score_view"] == view) for view in VIEWS}
    assert by_view["discriminating"] < by_view["repaired"] == by_view["all"]
    assert any(row["n_untimed"] for row in board if row["score_view"] == "all")


def test_claims_stand_beside_verdicts(filled: Lake) -> None:
    rows = filled.query("SELECT * FROM rpt_claim").to_pylist()
    assert len(rows) == 45
    for row in rows:
        if row["verdict"] in ("TASK_ERROR", "TIMING_DISAGREE") or row["verdict"].startswith("INFRA"):
            expected = "undecided"
        elif row["claimed_correct"]:
            expected = "confirmed" if row["is_honest_correct"] else "refuted"
        else:
            expected = "vindicated" if row["is_honest_correct"] else "agreed_wrong"
        assert row["outcome"] == expected
        assert row["is_honest_correct"] == (row["verdict"] == "CORRECT" and row["honesty"] in ("own", "mixed"))
    assert {"confirmed", "refuted", "vindicated", "agreed_wrong", "undecided"} == {row["outcome"] for row in rows}


def test_fast_p_is_strict_and_the_first_sample_counts(home: Path, made: ModuleType) -> None:
    """Identical times on both sides are a speedup of exactly 1: not fast_1. A better second sample changes nothing."""
    new = home / "attempts" / "new"
    even = made.make_attempt(1, speedup=1.0)
    even = dataclasses.replace(even, samples=tuple(dataclasses.replace(s, host_us=100.0) for s in even.samples))
    fast = made.make_attempt(2, speedup=9.0)
    for one in (even, fast):
        write_attempt(new, one)
    member = {"evaluation_id": "e", "suite": "s", "level": 1, "number": 1}
    rows: list[dict[str, Any]] = [
        {**member, "sample_id": number, "problem_id": one.attempt.problem_id, "kernel_id": one.attempt.kernel_id,
         "attempt_id": one.attempt.attempt_id, "no_kernel_reason": ""} for number, one in enumerate((even, fast))]
    rows.append({**member, "number": 2, "sample_id": 0, "no_kernel_reason": "none written"})
    with Lake.open(home) as lake:
        publish(lake, new, run_id="r")
        lake.commit({"evaluation_member": rows, "evaluation": [{"evaluation_id": "e", "name": "n"}]}, message="m",
                    run_id="r")
        board = lake.query("SELECT * FROM rpt_leaderboard WHERE scope = 'all'").to_pylist()
    assert [(row["n_problems"], row["n_fast_0"], row["n_fast_1"]) for row in board] == [(2, 1, 0)]


def test_the_funnel_speaks_with_the_finishing_run(home: Path) -> None:
    def rows(run_id: str, value: int) -> list[dict[str, Any]]:
        return [{"run_id": run_id, "scope": "c", "step": "dedup", "name": name, "value": number}
                for name, number in (("in", value), ("kept", value - 2), ("out:duplicate_exact", 2))]

    with Lake.open(home) as lake:
        lake.commit({"counter": rows("aborted", 7)}, message="m", run_id="aborted")
        lake.commit({"counter": rows("finished", 9), "curation": [{"curation_id": "c", "run_id": "finished"}]},
                    message="m", run_id="finished")
        (row,) = lake.query("SELECT * FROM rpt_funnel").to_pylist()
    assert (row["run_id"], row["rows_in"], row["rows_kept"], row["rows_duplicate"], row["rows_dropped"]) == (
        "finished", 9, 7, 2, 0)
    assert row["reasons"] == "duplicate_exact 2"


def test_a_records_fate_is_its_first_drop(filled: Lake) -> None:
    rows = filled.query("SELECT decision, dropped_at, count(*) AS n, count(split) AS members FROM fct_record "
                        "GROUP BY ALL ORDER BY ALL").to_pylist()
    assert sum(row["n"] for row in rows) == 160
    kept = [row for row in rows if row["decision"] == "keep"]
    assert [(row["n"], row["members"]) for row in kept] == [(83, 83)]
    assert {row["dropped_at"]: row["n"] for row in rows if row["decision"] == "drop"} == {
        "dedup": 13, "overlap": 3, "honesty": 17, "speedup": 38, "augment": 6}


def test_an_incorrect_kernel_has_no_speedup(home: Path, made: ModuleType) -> None:
    new = home / "attempts" / "new"
    one = made.make_attempt(1)
    wrong = dataclasses.replace(one.attempt, verdict=Verdict.TIMING_DISAGREE, speedup=None, speedup_low=None,
                                speedup_high=None)
    write_attempt(new, dataclasses.replace(one, attempt=wrong))
    with Lake.open(home) as lake:
        publish(lake, new, run_id="r")
        assert lake.query("SELECT count(*) AS n FROM fct_block").to_pylist() == [{"n": 2 * (10 + 5)}]
        assert lake.query("FROM fct_speedup").num_rows == 0


def test_a_speedup_by_the_judges_clock_is_the_same_in_sql_and_in_the_arena(home: Path, made: ModuleType) -> None:
    """Half of the rows claim less than the judge's clock bears out: these count with the judge's."""
    one = made.make_attempt(1, device="cuda")
    samples = tuple(
        dataclasses.replace(s, host_us=s.host_us / 3) if s.end_to_end and s.side == "candidate" and s.block % 2 else s
        for s in one.samples)
    arena = timing.measured(samples, timing.JUDGE)
    attempt = dataclasses.replace(one.attempt, basis="judge", speedup=arena.point, speedup_low=arena.low,
                                  speedup_high=arena.high)
    write_attempt(home / "attempts" / "new", dataclasses.replace(one, attempt=attempt, samples=samples))
    with Lake.open(home) as lake:
        publish(lake, home / "attempts" / "new", run_id="r")
        (row,) = lake.query("SELECT * FROM fct_speedup").to_pylist()
    np.testing.assert_allclose([row["speedup"], row["speedup_low"], row["speedup_high"]],
                               [arena.point, arena.low, arena.high], rtol=1e-4)
    assert (row["basis"], row["n_blocks"], row["end_to_end_speedup"]) == ("judge", 5, row["speedup"])
    honest = timing.measured(one.samples, timing.JUDGE)
    assert arena.point == pytest.approx(honest.point, rel=0.05)  # the lie about every second row gains nothing


def test_augmentation_tells_each_structure_with_its_verdicts_and_widest_bounds(filled: Lake) -> None:
    records = filled.query("""
        SELECT r.structure, r.record_id, r.problem_id, r.decision, a.verdict, s.speedup, s.speedup_low, s.speedup_high
        FROM fct_record r JOIN attempt a USING (kernel_id, problem_id) LEFT JOIN fct_speedup s USING (attempt_id)
        WHERE r.origin = 'augmentation' AND a.honesty NOT IN ('library', 'none')""").to_pylist()
    report = {row["structure"]: row for row in filled.query("FROM rpt_augmentation").to_pylist()}
    assert set(report) == {row["structure"] for row in records} and len(report) > 3
    for structure, row in report.items():
        mine = [one for one in records if one["structure"] == structure]
        assert row["family"] == "attention"
        assert row["n_records"] == len({one["record_id"] for one in mine})
        assert row["n_sets"] == len({one["problem_id"] for one in mine})
        assert row["n_kept"] == len({one["record_id"] for one in mine if one["decision"] == "keep"})
        correct = len({one["record_id"] for one in mine if one["verdict"] == "CORRECT"})
        assert row["verdicts"].startswith(f"CORRECT {correct}")
        assert row["speedup_low"] == min(one["speedup_low"] for one in mine)
        assert row["speedup_high"] == max(one["speedup_high"] for one in mine)
        assert row["median_speedup"] == pytest.approx(np.median([one["speedup"] for one in mine]))
        assert row["speedup_low"] <= row["min_speedup"] <= row["median_speedup"] <= row["max_speedup"]
