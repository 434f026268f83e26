"""The analysts' database: complete, readable by plain DuckDB, replaced whole."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from dice_core.errors import LakeError
from dice_core.lake.analytics import build_analytics
from dice_core.lake.catalog import Lake
from dice_core.lake.objects import ordered_views


def test_every_view_is_a_table_that_plain_duckdb_reads(filled: Lake, tmp_path: Path) -> None:
    path = tmp_path / "analytics.duckdb"
    rows = build_analytics(filled, path)
    assert set(rows) == {one.name for one in ordered_views()}
    with duckdb.connect(str(path), read_only=True) as con:
        for name, count in rows.items():
            found = con.execute(f"SELECT count(*) FROM {name}").fetchone()
            assert found == (count,) == (filled.query(f"SELECT * FROM {name}").num_rows,)
        best = con.execute("SELECT attempt_id, speedup FROM rpt_speedup ORDER BY speedup DESC LIMIT 1").fetchone()
        comment = con.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'fct_speedup'").fetchone()
        about = con.execute("SELECT snapshot_id FROM about").fetchone()
    top = filled.query("SELECT attempt_id, speedup FROM rpt_speedup ORDER BY speedup DESC LIMIT 1").to_pylist()[0]
    assert best is not None
    assert (best[0], best[1]) == (top["attempt_id"], pytest.approx(top["speedup"]))
    assert comment is not None
    assert "units:" in comment[0]
    assert about == (filled.snapshots()[-1].snapshot_id,)
    assert [one.name for one in tmp_path.iterdir()] == ["analytics.duckdb"]


def test_an_open_reader_keeps_its_file_while_a_new_one_is_put_in_place(home: Path) -> None:
    path = home / "out" / "analytics.duckdb"
    with Lake.open(home) as lake:
        build_analytics(lake, path)
        with duckdb.connect(str(path), read_only=True) as old:
            before = path.stat().st_ino
            lake.commit({"problem": [{"problem_id": "p", "source": "x"}]}, message="m", run_id="r")
            build_analytics(lake, path)
            assert path.stat().st_ino != before
            assert old.execute("SELECT count(*) FROM dim_problem").fetchone() == (0,)


def test_a_failed_build_leaves_the_old_file(home: Path) -> None:
    (home / "file").write_text("in the way")
    with Lake.open(home) as lake, pytest.raises((LakeError, OSError)):
        build_analytics(lake, home / "file" / "analytics.duckdb")
    assert (home / "file").read_text() == "in the way"
