from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dice_core.records import (
    Attempt,
    Honesty,
    QuarantineRow,
    TrainingRecord,
    Verdict,
    WorkItem,
    canonical_json,
    make_id,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON)
def test_ids_do_not_depend_on_key_order(payload: object) -> None:
    def reversed_keys(value: object) -> object:
        if isinstance(value, dict):
            return {k: reversed_keys(v) for k, v in reversed(list(value.items()))}
        return [reversed_keys(v) for v in value] if isinstance(value, list) else value

    assert make_id("x", payload) == make_id("x", reversed_keys(payload))
    assert json.loads(canonical_json(payload)) == payload
    assert re.fullmatch(r"x_[0-9a-f]{32}", make_id("x", payload))


@pytest.mark.parametrize("payload", [1.5, {"a": [0.0]}, {"a": {"b": float("nan")}}])
def test_floats_never_enter_an_id(payload: object) -> None:
    with pytest.raises(TypeError, match="may not depend on a float"):
        make_id("x", payload)


def test_an_id_names_all_that_matters() -> None:
    base = WorkItem("reference", "kernel", "cpu", "quick")
    others = [
        WorkItem("reference2", "kernel", "cpu", "quick"), WorkItem("reference", "kernel2", "cpu", "quick"),
        WorkItem("reference", "kernel", "cuda", "quick"), WorkItem("reference", "kernel", "cpu", "standard"),
        WorkItem("reference", "kernel", "cpu", "quick", ordinal=1),
    ]
    ids = {item.attempt_id("env_1") for item in [base, *others]} | {base.attempt_id("env_2")}
    assert len(ids) == 7
    assert WorkItem("reference", "kernel", "cpu", "quick", labels={"a": "b"}).attempt_id("env_1") == base.attempt_id(
        "env_1")


def test_records_of_the_same_row_are_the_same() -> None:
    record = TrainingRecord("src_1", "row 3", "u", "name", "code", "kernel", claimed_speedup=2.5)
    assert record.record_id == TrainingRecord("src_1", "row 3", "other", "n", "code", "kernel").record_id
    assert record.record_id != TrainingRecord("src_1", "row 4", "u", "name", "code", "kernel").record_id
    assert record.problem_id.startswith("prb_") and record.kernel_id.startswith("krn_")


def test_lone_surrogates_have_ids() -> None:
    assert QuarantineRow("src", "row 1", "encoding", "code", "\udcff", "{}").quarantine_id
    assert WorkItem("\udcff", "k").problem_id


def test_infra_and_deception_are_told_apart() -> None:
    assert {v for v in Verdict if v.is_infra} == {Verdict.INFRA_ERROR, Verdict.INFRA_TIMEOUT}
    assert {h for h in Honesty if h.is_deceptive} == {Honesty.LIBRARY, Honesty.NONE}


def test_attempt_round_trip() -> None:
    attempt = Attempt("att_1", "krn_1", "prb_1", "env_1", 1, "quick", "cpu", 0, "c", "s", Verdict.TIMEOUT,
                      Honesty.UNKNOWN, "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", {"check": 1.0}, {"message": "m"})
    assert Attempt.from_json(json.loads(json.dumps(attempt.to_json()))) == attempt
