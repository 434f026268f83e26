from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from dice_core.bench.claims import choose, from_claims
from dice_core.bench.evaluation import Evaluation
from dice_core.errors import SourceError, UsageError
from dice_core.records import Problem

PROBLEMS = [Problem("s", level, number, f"{number}_p", f"class Model: {level}.{number}")
            for level in (1, 2) for number in (1, 2, 3)]


def row(model: str, level: int, number: int, correct: bool = True) -> dict[str, Any]:
    return {"model": model, "level": level, "problem_id": number, "kernel_code": f"{model} {level} {number}",
            "claimed_compiled": True, "claimed_correct": correct, "claimed_runtime_ms": 1.5 if correct else None,
            "claimed_hardware": "GPU"}


ROWS = [row(model, level, number, number > 1) for model in ("a", "b") for level in (1, 2) for number in (1, 2, 3)]


def test_the_choice_is_even_repeatable_and_blind_to_the_claim() -> None:
    first = choose(ROWS, 8, seed=1)
    assert {(model, level): sum((r["model"], r["level"]) == (model, level) for r in first)
            for model in "ab" for level in (1, 2)} == {("a", 1): 2, ("a", 2): 2, ("b", 1): 2, ("b", 2): 2}
    shuffled = random.Random(3).sample(ROWS, len(ROWS))
    assert choose(shuffled, 8, seed=1) == first
    denied = [{**r, "claimed_correct": not r["claimed_correct"]} for r in ROWS]
    assert [r["kernel_code"] for r in choose(denied, 8, seed=1)] == [r["kernel_code"] for r in first]
    assert any(choose(ROWS, 8, seed=n) != first for n in range(2, 8))
    assert len(choose(ROWS, len(ROWS), seed=1)) == len(ROWS)
    with pytest.raises(UsageError, match="13 of 12"):
        choose(ROWS, 13, seed=1)


def test_claims_travel_with_their_samples() -> None:
    evaluation = from_claims("c", PROBLEMS, ROWS, plan="quick", device="cuda", source="f.parquet")
    assert [(m.problem.level, m.problem.number, m.sample_id, m.claim["model"]) for m in evaluation.members[:3]] == [
        (1, 1, 0, "a"), (1, 1, 1, "b"), (1, 2, 0, "a")]
    back = Evaluation.from_json(evaluation.to_json())
    assert back == evaluation and len(back.items()) == len(ROWS)


def test_bad_rows_are_named() -> None:
    with pytest.raises(SourceError, match=r"f\.parquet: the suite has no level 1 problem 9"):
        from_claims("c", PROBLEMS, [row("a", 1, 9)], plan="quick", device="cuda", source="f.parquet")
    with pytest.raises(SourceError, match="row 0: field model is missing"):
        from_claims("c", PROBLEMS, [{**row("a", 1, 1), "model": None}], plan="quick", device="cuda", source="f")


def test_real_claims(real_data: Path) -> None:
    import pyarrow.parquet as pq

    path = real_data / "kernelbench_runs" / "llm_candidates_rtx4090_half.parquet"
    chosen = choose(pq.ParquetFile(path).read(use_threads=False).to_pylist(), 108, seed=0)
    counts = {(r["model"], r["level"]) for r in chosen}
    assert len(chosen) == 108 and len(counts) == 12
