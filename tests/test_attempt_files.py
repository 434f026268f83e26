from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dice_core.errors import AuditError, SourceError
from dice_core.lake.attempts import AttemptFile, finished_attempts, read_attempt, write_attempt
from dice_core.records import Attempt, Build, Environment, Honesty, Kernel, TimingSample, Verdict, WorkItem


def content() -> AttemptFile:
    item = WorkItem("class Model: ...", "class ModelNew: ...", labels={"name": "x"})
    environment = Environment({"cpu": "test"}, {"load_average": [0.5]})
    attempt = Attempt(item.attempt_id(environment.environment_id), item.kernel_id, item.problem_id,
                      environment.environment_id, 1, "quick", "cpu", 0, "commit", "seed", Verdict.CORRECT, Honesty.OWN,
                      "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z", {"build": 0.5}, {"ops": ["mm"]}, 2.0, 1.9,
                      2.1, 10.0, 5.0, True)
    build = Build("bld_1", item.kernel_id, "ok", "light", "00ff", 1.0, 0.9, False, "[]", "")
    samples = tuple(
        TimingSample("eager", block, 0, 0, False, 1, None, 10.0 + block, True, 7, 200.0) for block in range(5))
    return AttemptFile(attempt, environment, item.problem_source, Kernel(item.kernel_source), (build,), samples,
                       item.labels)


def test_round_trip(tmp_path: Path) -> None:
    path = write_attempt(tmp_path, content())
    read = read_attempt(path)
    assert replace(read, sha256="") == content()
    assert finished_attempts(tmp_path) == {content().attempt.attempt_id: path}


def test_an_attempt_without_samples_is_whole(tmp_path: Path) -> None:
    bare = replace(content(), samples=(), builds=())
    assert read_attempt(write_attempt(tmp_path, bare)).samples == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.integers(0), st.integers(1, 255))
def test_any_altered_byte_is_found(tmp_path: Path, position: int, change: int) -> None:
    path = write_attempt(tmp_path, content())
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= change
    path.write_bytes(data)
    with pytest.raises(AuditError, match="does not fit the file's name"):
        read_attempt(path)


def test_sources_must_fit_their_ids(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="kernel_id is krn_"):
        write_attempt(tmp_path, replace(content(), kernel=Kernel("another")))
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dice_core.files import sha256_file

    raw = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1]}), raw)
    path = raw.rename(tmp_path / f"att_1.{sha256_file(raw)[:16]}.parquet")
    with pytest.raises(SourceError, match="not an attempt file"):
        read_attempt(path)
