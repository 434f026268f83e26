from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dice_core.bench.problems import load_suite
from dice_core.curation.concur import RawRow
from dice_core.curation.overlap import OverlapIndex, check_overlap
from dice_core.curation.sources import read_source
from dice_core.errors import UsageError
from dice_core.records import TrainingRecord

MakeRecord = Callable[..., TrainingRecord]


@pytest.fixture
def index(make_module: Callable[..., str]) -> OverlapIndex:
    return OverlapIndex.build([("1/1 relu", make_module("relu", 64)), ("1/2 tanh", make_module("tanh", 4))])


def test_the_closest_degree_of_overlap_is_named(index: OverlapIndex, make_record: MakeRecord) -> None:
    exact = make_record(0)
    respelt = make_record(0, pytorch_code=exact.pytorch_code.replace("(self, x)", "(self, y)").replace("(x)", "(y)"))
    resized = make_record(2)
    free = make_record(3)
    kept, decisions = check_overlap([exact, respelt, resized, free], index)
    assert kept == [free]
    assert [(d.rule, d.verdict) for d in decisions] == [
        ("benchmark_exact", "drop"),
        ("benchmark_ast", "drop"),
        ("benchmark_structure", "drop"),
        ("no_overlap", "keep"),
    ]
    assert "1/1 relu" in decisions[0].reason and "1/2 tanh" in decisions[2].reason


def test_the_flag_policy_keeps_and_says_so(index: OverlapIndex, make_record: MakeRecord) -> None:
    kept, (decision,) = check_overlap([make_record(0)], index, "flag")
    assert kept == [make_record(0)]
    assert (decision.rule, decision.verdict) == ("benchmark_exact", "flag")


def test_without_a_suite_nothing_is_claimed(make_record: MakeRecord) -> None:
    kept, (decision,) = check_overlap([make_record(0)], None)
    assert kept == [make_record(0)]
    assert (decision.rule, decision.verdict) == ("not_checked", "flag")


def test_bad_requests(index: OverlapIndex) -> None:
    with pytest.raises(UsageError, match="no problems"):
        OverlapIndex.build([])
    bad: Any = "ignore"
    with pytest.raises(UsageError, match="ignore"):
        check_overlap([], index, bad)


def test_cuda_l1_modules_are_found_in_a_later_kernelbench_revision(real_data: Path) -> None:
    problems = load_suite(real_data / "kernelbench" / "kernelbench_v0_2.parquet")
    index = OverlapIndex.build((f"{p.level}/{p.number}", p.source) for p in problems)
    hits = {}
    for row in read_source(real_data / "cuda_l1" / "h100_claims_half.parquet").rows():
        assert isinstance(row, RawRow)
        name = str(row.values["problem_name"]).removeprefix("level").replace("_", "/")
        if found := index.find(row.values["pytorch_code"]):
            hits[name] = found
    # Sizes and input distributions changed between the revisions, a few modules changed altogether.
    assert len(hits) >= 105
    assert sum(1 for name, (_, _, problem) in hits.items() if name == problem) >= 0.9 * len(hits)
