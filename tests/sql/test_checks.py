"""Every check passes on a sound lake and finds the fault that it is for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dice_core.lake.attempts import samples_table
from dice_core.lake.catalog import Lake
from dice_core.lake.checks import CheckResult, run_checks
from dice_core.lake.objects import load_objects, ordered_views
from dice_core.lake.rows import to_table

Tables = dict[str, list[dict[str, Any]]]


def test_a_sound_lake_passes_every_check(filled: Lake) -> None:
    results = run_checks(filled)
    assert {one.name: one.examples for one in results} == {one.name: () for one in load_objects("checks")}
    assert all(one.passed for one in results)


def sound(made: ModuleType) -> Tables:
    """One attempt with all that belongs to it, one evaluation, one curation, one data set version."""
    one = made.make_attempt(1, repetitions=1)
    attempt = {k: v for k, v in one.attempt.to_json().items() if k not in ("stages", "evidence")}
    return {
        "attempt": [{**attempt, "file_sha256": "0"}],
        "environment": [{"environment_id": one.attempt.environment_id}],
        "problem": [{"problem_id": one.attempt.problem_id}],
        "kernel": [{"kernel_id": one.attempt.kernel_id}],
        "timing_sample": samples_table(one.attempt.attempt_id, one.samples).to_pylist(),
        "evaluation_member": [{"evaluation_id": "e", "suite": "s", "level": 1, "number": 1, "sample_id": 0,
                               "attempt_id": one.attempt.attempt_id}],
        "counter": [{"run_id": "r", "scope": "c", "step": step, "name": name, "value": value}
                    for step, name, value in (
                        ("ingest", "in", 5), ("ingest", "kept", 5), ("speedup", "in", 4), ("speedup", "kept", 1),
                        ("speedup", "out:slow", 3), ("cuke", "in", 1), ("cuke", "kept", 1), ("contract", "in", 5),
                        ("contract", "kept", 4), ("contract", "out:rule", 1))],
        "curation": [{"curation_id": "c", "run_id": "r", "source_files_json": '["s"]'}],
        "quarantine": [{"quarantine_id": f"q{n}", "source_file_id": "s", "row_locator": "row 5"} for n in (0, 1)],
        "training_record": [{"record_id": "rec", "problem_id": one.attempt.problem_id,
                             "kernel_id": one.attempt.kernel_id}],
        "decision": [{"curation_id": "c", "record_id": "rec", "step": "speedup", "rule": "x", "verdict": "keep"},
                     *({"curation_id": "c", "record_id": f"slow{n}", "step": "speedup", "rule": "slow",
                        "verdict": "drop"} for n in range(3))],
        "dataset_version": [{"dataset_version_id": "d", "curation_id": "c", "n_records": 1}],
        "dataset_member": [{"dataset_version_id": "d", "record_id": "rec", "evidence": "measured", "split": "train"}],
        "lake_file": [{"path": "main/attempt/a.parquet", "sha256": "0", "size_bytes": 9}],
    }


def change(table: str, **values: Any) -> Callable[[Tables], None]:
    return lambda tables: tables[table][0].update(values)


def drop(table: str) -> Callable[[Tables], None]:
    return lambda tables: tables.pop(table) and None


def infra(**values: Any) -> Callable[[Tables], None]:
    clear = {"speedup": None, "speedup_low": None, "speedup_high": None, "honesty": "unknown", "verdict": "INFRA_ERROR"}
    return change("attempt", **{**clear, **values})


FAULTS: list[tuple[str, Callable[[Tables], None]]] = [
    ("chk_attempt_without_environment", drop("environment")),
    ("chk_attempt_without_environment", drop("kernel")),
    ("chk_attempt_without_environment", drop("problem")),
    ("chk_counter_balance", change("counter", value=6)),
    ("chk_counter_balance", lambda tables: tables["counter"].pop(-1) and None),
    ("chk_counter_balance", lambda tables: tables["counter"].pop(-3) and None),
    ("chk_counter_balance", lambda tables: [tables["counter"][i].update(value=4) for i in (0, 1)] and None),
    ("chk_speedup_only_when_correct", change("attempt", verdict="INCORRECT_NUMERICAL")),
    ("chk_correct_has_samples", drop("timing_sample")),
    ("chk_correct_has_samples", change("attempt", speedup=1.9)),
    ("chk_sample_impossible", change("timing_sample", host_us=0.0)),
    ("chk_sample_impossible", change("timing_sample", batch=0)),
    ("chk_sample_impossible", change("timing_sample", side="other")),
    ("chk_member_without_attempt_or_reason", change("evaluation_member", attempt_id=None, no_kernel_reason="")),
    ("chk_member_without_attempt_or_reason", change("evaluation_member", attempt_id="att_unknown")),
    ("chk_infra_never_counted", change("decision", verdict="drop", rule="incorrect", reason="measured: INFRA_ERROR")),
    ("chk_infra_never_counted", infra(speedup=2.0)),
    ("chk_dataset_member_without_record", drop("training_record")),
    ("chk_dataset_member_without_record", change("decision", verdict="drop")),
    ("chk_dataset_member_without_record", change("dataset_version", n_records=2)),
    ("chk_measured_member_unproved", change("attempt", verdict="INCORRECT_NUMERICAL")),
    ("chk_measured_member_unproved", change("attempt", honesty="library")),
    ("chk_measured_member_unproved", change("training_record", kernel_id="krn_other")),
]


def twice(table: str) -> Callable[[Tables], None]:
    return lambda tables: tables[table].append(tables[table][0])


def sister(**values: Any) -> Callable[[Tables], None]:
    """A second member on the other side, with something of the first one's."""

    def plant(tables: Tables) -> None:
        first = tables["training_record"][0]
        tables["training_record"].append({**first, "record_id": "rec2", "problem_id": "p", "kernel_id": "k", **{
            name: first[name] for name in values}})
        tables["dataset_member"].append({**tables["dataset_member"][0], "record_id": "rec2", "split": "validation"})

    return plant


def counted(step: str, name: str, value: int) -> Callable[[Tables], None]:
    return lambda tables: next(one for one in tables["counter"] if (one["step"], one["name"]) == (step, name)).update(
        value=value)


FAULTS += [
    ("chk_funnel_matches_decision", counted("speedup", "out:slow", 2)),
    ("chk_funnel_matches_decision", lambda tables: tables["decision"].pop() and None),
    ("chk_funnel_matches_decision", change("decision", verdict="drop")),
    ("chk_funnel_matches_version", counted("cuke", "kept", 2)),
    ("chk_funnel_matches_version", counted("cuke", "in", 2)),
    ("chk_funnel_matches_version", counted("speedup", "kept", 2)),
    ("chk_funnel_matches_version", change("dataset_version", n_records=7)),
    ("chk_quarantine_counted", drop("quarantine")),
    ("chk_quarantine_counted", counted("contract", "out:rule", 2)),
    ("chk_record_without_decision", lambda tables: tables["decision"].pop(0) and None),
    ("chk_split_leak", change("dataset_member", split="test")),
    ("chk_split_leak", change("dataset_member", split=None)),
    ("chk_split_leak", sister(problem_id=1)),
    ("chk_split_leak", sister(kernel_id=1)),
    ("chk_attempt_duplicate", twice("attempt")),
    ("chk_attempt_duplicate", twice("timing_sample")),
    ("chk_file_recorded", twice("lake_file")),
    ("chk_file_recorded", change("lake_file", sha256=None)),
]


class Plain:
    """The SQL files on plain DuckDB tables: no keys are enforced, so that any fault can be planted."""

    def __init__(self, tables: Tables) -> None:
        self._con = duckdb.connect()
        for one in load_objects("schema"):
            self._con.execute(one.body)
        for name, rows in tables.items():
            self._con.register("incoming", to_table(name, rows))
            self._con.execute(f"INSERT INTO {name} SELECT * FROM incoming")
        for view in ordered_views():
            self._con.execute(f"CREATE VIEW {view.name} AS {view.body}")

    def query(self, sql: str) -> pa.Table:
        return self._con.execute(sql).to_arrow_table()


def failed(tables: Tables) -> dict[str, CheckResult]:
    return {one.name: one for one in run_checks(Plain(tables)) if not one.passed}


def test_the_small_lake_is_sound() -> None:
    assert failed(sound(sys.modules["synthetic"])) == {}


def test_every_check_has_a_fault() -> None:
    assert {name for name, _ in FAULTS} == {one.name for one in load_objects("checks")}


@pytest.mark.parametrize(("name", "plant"), FAULTS, ids=[f"{n}-{name}" for n, (name, _) in enumerate(FAULTS)])
def test_a_planted_fault_is_found(name: str, plant: Callable[[Tables], None]) -> None:
    tables = sound(sys.modules["synthetic"])
    plant(tables)
    found = failed(tables)
    assert name in found
    assert found[name].examples != ()
