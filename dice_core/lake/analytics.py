"""The analysts' database: one DuckDB file with every view and report as a table.

It is built aside and put in place by rename. A reader keeps the file that it opened, a new reader gets the new one,
and nobody ever meets a lock.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import duckdb

from dice_core import __version__
from dice_core.errors import LakeError
from dice_core.files import fsync_dir
from dice_core.lake.catalog import Lake
from dice_core.lake.connection import connect, quoted
from dice_core.lake.objects import ordered_views
from dice_core.records import utc_now


def build_analytics(lake: Lake, path: Path) -> dict[str, int]:
    """Materialise all `dim_`, `fct_` and `rpt_` objects, seen at one snapshot, into the DuckDB file `path`.

    A table `about` names the snapshot, the DICE version and the time.

    Returns:
        Rows by table.

    Raises:
        LakeError: the file cannot be written; the old one, if any, is untouched.
    """
    snapshot = lake.snapshots()[-1]
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        aside = Path(folder) / path.name
        try:
            rows = _fill(lake, aside, snapshot.snapshot_id)
        except duckdb.Error as error:
            raise LakeError(f"{path}: cannot be built: {error}") from error
        with aside.open("rb") as handle:
            os.fsync(handle.fileno())
        os.replace(aside, path)
    fsync_dir(path.parent)
    return rows


def _fill(lake: Lake, aside: Path, snapshot_id: int) -> dict[str, int]:
    rows: dict[str, int] = {}
    with contextlib.closing(connect(lake.lake_dir, read_only=True, as_of=snapshot_id)) as con:
        con.execute(f"ATTACH {quoted(aside)} AS marts")
        # Each view finds the tables made from the views before it first, then the lake's own tables.
        con.execute("SET search_path = 'marts.main,lake.main'")
        for view in ordered_views():
            con.execute(f"CREATE TABLE marts.main.{view.name} AS {view.body}")
            con.execute(f"COMMENT ON TABLE marts.main.{view.name} IS {quoted(view.header)}")
            counted = con.execute(f"SELECT count(*) FROM marts.main.{view.name}").fetchone()
            rows[view.name] = int(counted[0]) if counted else 0
        con.execute("CREATE TABLE marts.main.about AS SELECT ? AS snapshot_id, ? AS dice_version, ? AS built_at",
                    [snapshot_id, __version__, utc_now()])
        con.execute("USE lake")
        con.execute("DETACH marts")
    return rows
