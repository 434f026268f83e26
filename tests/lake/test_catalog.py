"""The lake itself: creation, commits, keys, concurrency, snapshots, moving."""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from dice_core.errors import LakeError, SchemaError, UsageError
from dice_core.files import sha256_file
from dice_core.lake.catalog import Lake
from dice_core.schemas import KEYS, SCHEMAS


def counter(name: str, value: int = 1, run_id: str = "r") -> dict[str, object]:
    return {"run_id": run_id, "scope": "s", "step": "ingest", "name": name, "value": value}


def count(lake: Lake, table: str) -> int:
    (row,) = lake.query(f"SELECT count({KEYS[table][0]}) AS n FROM {table}").to_pylist()
    return int(row["n"])


def test_a_new_lake_has_every_table_empty(tmp_path: Path) -> None:
    with Lake.open(tmp_path) as lake:
        assert {name: count(lake, name) for name in SCHEMAS} == dict.fromkeys(SCHEMAS, 0)


def test_commit_inserts_only_new_keys_and_says_how_many(home: Path) -> None:
    with Lake.open(home) as lake:
        first = lake.commit({"counter": [counter("in", 1), counter("in", 2), counter("kept", 3)]}, message="m",
                            run_id="r")
        again = lake.commit({"counter": [counter("kept", 9), counter("out:x", 4)]}, message="m", run_id="r")
        rows = lake.query("SELECT name, value FROM counter ORDER BY name").to_pylist()
    assert (first, again) == ({"counter": 2}, {"counter": 1})
    assert rows == [{"name": "in", "value": 1}, {"name": "kept", "value": 3}, {"name": "out:x", "value": 4}]


def test_a_repeated_commit_makes_no_snapshot(home: Path) -> None:
    with Lake.open(home) as lake:
        lake.commit({"counter": [counter("in")]}, message="first", run_id="run-9")
        before = lake.snapshots()
        assert lake.commit({"counter": [counter("in")]}, message="second", run_id="r") == {"counter": 0}
        assert lake.snapshots() == before
    assert (before[-1].message, before[-1].run_id) == ("first", "run-9")
    assert before[-1].author.startswith("dice ")


def test_all_tables_of_a_commit_or_none(home: Path) -> None:
    with Lake.open(home) as lake:
        with pytest.raises(SchemaError):
            lake.commit({"counter": [counter("in")], "kernel": [{"kernel_id": None}]}, message="m", run_id="r")
        assert count(lake, "counter") == 0


def test_arrow_tables_and_times_in_any_offset(home: Path) -> None:
    row = {"environment_id": "env_1", "identity_json": "{}", "facts_json": "{}",
           "first_seen_at": "2026-12-01T10:00:00+02:00"}
    moment = dt.datetime(2026, 12, 1, 8, tzinfo=dt.UTC)
    table = pa.table({"environment_id": ["env_2"], "first_seen_at": pa.array([moment], pa.timestamp("ms", "UTC"))})
    with Lake.open(home) as lake:
        lake.commit({"environment": [row]}, message="m", run_id="r")
        lake.commit({"environment": table}, message="m", run_id="r")
        found = lake.query("SELECT first_seen_at FROM environment").to_pylist()
    assert found == [{"first_seen_at": moment}] * 2


@pytest.mark.parametrize(
    ("table", "row", "words"),
    [
        ("counter", {**counter("in"), "value": "many"}, "counter.value row 0"),
        ("counter", {**counter("in"), "extra": 1}, "no column 'extra'"),
        ("counter", {**counter("in"), "step": None}, "counter.step row 0: null"),
        ("training_record", {"record_id": "r", "claimed_speedup": math.nan}, "claimed_speedup row 0: nan"),
        ("training_record", {"record_id": "r", "claimed_speedup": math.inf}, "claimed_speedup row 0: inf"),
        ("environment", {"environment_id": "e", "first_seen_at": "2026-12-01T10:00:00"}, "no offset"),
        ("environment", {"environment_id": "e", "first_seen_at": "yesterday"}, "environment.first_seen_at row 0"),
        ("kernel", {"kernel_id": "k", "source": "\ud800"}, "kernel.source row 0"),
    ],
)
def test_a_row_that_does_not_fit_is_named(home: Path, table: str, row: dict[str, object], words: str) -> None:
    with Lake.open(home) as lake:
        with pytest.raises(SchemaError, match=words.replace("(", r"\(")):
            lake.commit({table: [row]}, message="m", run_id="r")
        assert count(lake, table) == 0


def test_an_unknown_table_is_refused(home: Path) -> None:
    with Lake.open(home) as lake, pytest.raises(LakeError, match="no table 'nothing'"):
        lake.commit({"nothing": []}, message="m", run_id="r")


def test_every_data_file_is_recorded_with_its_hash_and_zstd(home: Path) -> None:
    import pyarrow.parquet as pq

    with Lake.open(home) as lake:
        for name in "abc":
            lake.commit({"counter": [counter(name)], "problem": [{"problem_id": name, "source": name * 500}]},
                        message="m", run_id="r")
        recorded = {row["path"]: row for row in lake.query("SELECT * FROM lake_file").to_pylist()}
        snapshots = {one.snapshot_id for one in lake.snapshots()}
        files = {path.relative_to(lake.data_dir).as_posix(): path for path in lake.data_dir.rglob("*.parquet")
                 if path.parent.name in SCHEMAS}
    assert recorded.keys() == files.keys()
    assert len(files) == 6
    for name, path in files.items():
        assert (recorded[name]["sha256"], recorded[name]["size_bytes"]) == (sha256_file(path), path.stat().st_size)
        assert recorded[name]["snapshot_id"] in snapshots
        assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_moved_home_opens_and_goes_on(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new place"
    with Lake.open(old) as lake:
        lake.commit({"counter": [counter("in", 5)]}, message="m", run_id="r")
    old.rename(new)
    with Lake.open(new) as lake:
        assert lake.commit({"counter": [counter("in"), counter("kept", 4)]}, message="m", run_id="r") == {"counter": 1}
        assert lake.query("SELECT sum(value) AS n FROM counter").to_pylist() == [{"n": 9}]
    assert not old.exists()


def test_reading_goes_on_while_another_writes(home: Path) -> None:
    with Lake.open(home) as writer, Lake.open(home, read_only=True) as reader:
        for number in range(5):
            writer.commit({"counter": [counter(str(number))]}, message="m", run_id="r")
            assert count(reader, "counter") == number + 1
        with pytest.raises(LakeError, match="reading only"):
            reader.commit({"counter": [counter("x")]}, message="m", run_id="r")


def test_as_of_sees_the_past(home: Path) -> None:
    with Lake.open(home) as lake:
        lake.commit({"counter": [counter("in", 1)]}, message="m", run_id="r")
        past = lake.snapshots()[-1].snapshot_id
        lake.commit({"counter": [counter("kept", 10)]}, message="m", run_id="r")
        sql = "SELECT sum(value) AS n FROM counter"
        assert lake.query(sql, as_of=past).to_pylist() == [{"n": 1}]
        assert lake.query(sql).to_pylist() == [{"n": 11}]
        with pytest.raises(UsageError, match="no snapshot 999"):
            lake.query(sql, as_of=999)
        with pytest.raises(UsageError, match="older than the lake's tables"):
            lake.query(sql, as_of=0)


def test_there_must_be_a_lake_to_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no lake here"):
        Lake.open(tmp_path, read_only=True)
    assert not (tmp_path / "lake").exists()


def test_a_lake_of_another_version_is_refused(home: Path) -> None:
    Lake.open(home).close()
    code = (
        "from pathlib import Path; from dice_core.lake.connection import connect; import sys;"
        "con = connect(Path(sys.argv[1]), read_only=False); con.execute('UPDATE schema_version SET version = 99')"
    )
    subprocess.run([sys.executable, "-c", code, str(home / "lake")], check=True)
    with pytest.raises(LakeError, match="schema version 99"):
        Lake.open(home)


_HOLDER = """
import sqlite3, sys, time
con = sqlite3.connect(sys.argv[1], isolation_level=None)
con.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(1.5)
con.execute("ROLLBACK")
"""


def test_a_commit_outlasts_a_foreign_lock_on_the_catalog(home: Path) -> None:
    """Another program holds SQLite's write lock for a while; the commit is retried and goes through once."""
    with Lake.open(home) as lake:
        argv = [sys.executable, "-c", _HOLDER, str(home / "lake" / "catalog.sqlite")]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            began = time.monotonic()
            assert lake.commit({"counter": [counter("in")]}, message="m", run_id="r") == {"counter": 1}
            assert time.monotonic() - began > 1.0
        assert count(lake, "counter") == 1
        assert lake.query("SELECT count(DISTINCT filename) AS n FROM counter").to_pylist() == [{"n": 1}]


def test_a_mistake_is_not_taken_for_a_lock(home: Path) -> None:
    with Lake.open(home, read_only=True) as lake:
        began = time.monotonic()
        with pytest.raises(UsageError, match="busy"):
            lake.query("SELECT busy FROM counter")
        assert time.monotonic() - began < 15


_WRITER = """
import sys
from pathlib import Path
from dice_core.lake.catalog import Lake
who = sys.argv[2]
with Lake.open(Path(sys.argv[1])) as lake:
    for batch in range(20):
        rows = [{"run_id": run, "scope": "s", "step": str(batch), "name": str(n), "value": 1}
                for n in range(5) for run in (who, "both")]
        lake.commit({"counter": rows}, message=f"{who} {batch}", run_id=who)
"""


def test_two_processes_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """Two processes create the same lake at once and commit 20 batches each; half of all keys are common to both."""
    processes = [subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), who]) for who in ("one", "two")]
    assert [process.wait(120) for process in processes] == [0, 0]
    with Lake.open(tmp_path, read_only=True) as lake:
        found = lake.query("SELECT run_id, count(*) AS n, count(DISTINCT (step, name)) AS keys FROM counter "
                           "GROUP BY run_id ORDER BY run_id").to_pylist()
    assert found == [{"run_id": run, "n": 100, "keys": 100} for run in ("both", "one", "two")]
