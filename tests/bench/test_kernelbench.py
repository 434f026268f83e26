from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dice_core.bench.kernelbench import (
    eval_result,
    kernel_file_name,
    read_eval_results,
    read_kernel_folder,
    write_eval_results,
)
from dice_core.errors import SourceError, UsageError
from dice_core.records import Attempt, Honesty, TimingSample, Verdict


def attempt(verdict: Verdict) -> Attempt:
    return Attempt("att_1", "krn_1", "prb_1", "env_1", 1, "quick", "cpu", 0, "c", "s", verdict, Honesty.OWN,
                   "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", {},
                   {"error": "why"} if verdict is not Verdict.INCORRECT_SHAPE else {"reason": "why"})


def sample(host_us: float, *, warmup: bool = False, batch: int = 1, side: str = "candidate") -> TimingSample:
    return TimingSample(side, 0, 0, 0, warmup, batch, None, host_us, True, 1, host_us + 200.0)


def test_runtime_is_the_mean_of_timed_candidate_calls_in_ms() -> None:
    samples = [sample(9e9, warmup=True), sample(1000.0), sample(6000.0, batch=2), sample(5.0, side="eager")]
    entry = eval_result(attempt(Verdict.CORRECT), samples, 0, "CPU")
    assert entry["runtime"] == 2.0
    assert entry["runtime_stats"]["num_trials"] == 2
    assert entry["compiled"] and entry["correctness"]


@pytest.mark.parametrize(
    ("verdict", "compiled", "key"),
    [
        (Verdict.COMPILE_ERROR, False, "compilation_error"),
        (Verdict.LOAD_ERROR, False, "compilation_error"),
        (Verdict.RUNTIME_ERROR, True, "runtime_error"),
        (Verdict.INCORRECT_SHAPE, True, "correctness_issue"),
        (Verdict.CONTRACT_VIOLATION, True, "correctness_issue"),
    ],
)
def test_failures_carry_their_message(verdict: Verdict, compiled: bool, key: str) -> None:
    entry = eval_result(attempt(verdict), [sample(1.0)], 0, "CPU")
    assert entry["compiled"] is compiled
    assert not entry["correctness"]
    assert entry["runtime"] == -1.0
    assert entry["runtime_stats"] == {}
    assert entry["metadata"][key] == "why"


@given(st.dictionaries(st.integers(1, 200), st.lists(st.integers(0, 5), min_size=1, unique=True), min_size=1))
def test_results_file_round_trip(numbers: dict[int, list[int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        entries = [(n, eval_result(attempt(Verdict.CORRECT), [sample(1.0)], s, "CPU"))
                   for n, ids in numbers.items() for s in ids]
        path = write_eval_results(Path(folder) / "eval_results.json", entries)
        keys = list(json.loads(path.read_text(encoding="utf-8")))
        assert keys == [str(n) for n in sorted(numbers)]
        read = read_eval_results(path)
        assert {n: [e["sample_id"] for e in found] for n, found in read.items()} == {
            n: sorted(ids) for n, ids in numbers.items()}


_ENTRY = st.fixed_dictionaries({
    "sample_id": st.integers(0, 99), "compiled": st.booleans(), "correctness": st.booleans(),
    "metadata": st.dictionaries(st.text(max_size=8), st.none() | st.text(max_size=8) | st.lists(st.text(max_size=4))),
    "runtime": st.floats(allow_nan=False, allow_infinity=False),
    "runtime_stats": st.dictionaries(st.sampled_from(["mean", "std", "min", "max"]), st.floats(0, 1e6)),
})


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(
    st.integers(1, 300), st.lists(_ENTRY, min_size=1, max_size=2, unique_by=lambda e: e["sample_id"]), max_size=4))
def test_any_native_file_survives_reading_and_writing(native: dict[int, list[dict[str, object]]]) -> None:
    """Keys, values and order of KernelBench's own file: what it wrote is what it would read back from us."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = write_eval_results(Path(folder) / "a.json", [(n, e) for n, found in native.items() for e in found])
        read = read_eval_results(path)
        assert read == {n: sorted(found, key=lambda e: e["sample_id"]) for n, found in native.items()}  # type: ignore[arg-type, return-value]
        again = write_eval_results(Path(folder) / "b.json", [(n, e) for n, found in read.items() for e in found])
        assert again.read_bytes() == path.read_bytes()


def test_reading_names_the_problem_and_field(tmp_path: Path) -> None:
    path = tmp_path / "eval_results.json"
    path.write_text('{"3": [{"sample_id": 0, "compiled": true}]}', encoding="utf-8")
    with pytest.raises(SourceError, match="problem 3: an entry has no correctness"):
        read_eval_results(path)


def test_kernel_folder(tmp_path: Path) -> None:
    (tmp_path / kernel_file_name(2, 10, 1)).write_text("b", encoding="utf-8")
    (tmp_path / kernel_file_name(1, 3, 0)).write_text("a", encoding="utf-8")
    (tmp_path / "notes.py").write_text("", encoding="utf-8")
    found = read_kernel_folder(tmp_path)
    assert [(c.level, c.number, c.sample_id, c.source) for c in found] == [(1, 3, 0, "a"), (2, 10, 1, "b")]
    (tmp_path / kernel_file_name(1, 4, 0)).write_bytes(b"\xff")
    with pytest.raises(SourceError, match="level_1_problem_4"):
        read_kernel_folder(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="no file named"):
        read_kernel_folder(empty)
    with pytest.raises(UsageError, match="no such folder"):
        read_kernel_folder(tmp_path / "absent")
