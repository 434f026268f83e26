"""The lake: DuckLake tables (immutable Parquet, versioned) on an embedded SQLite catalog.

One `Lake` per process and thread of work. Writers take turns under a file lock that dies with its process; readers
never wait for them. `commit` is the only way in.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa

from dice_core import __version__
from dice_core.errors import LakeError, UsageError
from dice_core.files import file_lock, fsync_dir, sha256_file
from dice_core.lake.connection import connect, retry
from dice_core.lake.objects import load_objects
from dice_core.lake.query import Reader
from dice_core.lake.rows import Rows, to_table
from dice_core.schemas import KEYS, SCHEMAS

#: Raised when the meaning of stored rows changes.
SCHEMA_VERSION = 2

#: `lake_file` rows stay in the catalog itself, so that recording the data files makes no new data file.
_INLINED_ROWS = 100_000


@dataclass(frozen=True)
class Snapshot:
    """One committed state of the lake."""

    snapshot_id: int
    committed_at: dt.datetime
    author: str
    message: str
    run_id: str


class Lake:
    """An open lake. Use `Lake.open`, preferably as a context manager."""

    def __init__(self, lake_dir: Path, writer: duckdb.DuckDBPyConnection | None) -> None:
        """Internal; use `Lake.open`."""
        self.lake_dir = lake_dir
        self._writer = writer
        self._readers: dict[int | None, Reader] = {}
        self._busy = threading.RLock()

    @classmethod
    def open(cls, home: Path, *, read_only: bool = False) -> Lake:
        """Open the lake under `home/lake`; make it and its tables first where they are missing.

        Args:
            home: DICE_HOME. It may have been moved since the last time.
            read_only: never create nor change anything.

        Raises:
            UsageError: `read_only`, and there is no lake.
            LakeError: the stored tables are not the ones this version knows.
        """
        lake_dir = home.absolute() / "lake"
        if read_only:
            if not (lake_dir / "catalog.sqlite").is_file():
                raise UsageError(f"{lake_dir}: there is no lake here yet; run `dice init`")
            return cls(lake_dir, None)
        (lake_dir / "data").mkdir(parents=True, exist_ok=True)
        (lake_dir / "tmp").mkdir(exist_ok=True)
        try:
            with file_lock(lake_dir / "commit.lock", what="a commit to the lake"):
                writer = connect(lake_dir, read_only=False)
                try:
                    _ensure_tables(writer)
                except BaseException:
                    writer.close()
                    raise
        except duckdb.Error as error:
            raise LakeError(f"{lake_dir}: cannot open the lake: {error}") from error
        return cls(lake_dir, writer)

    def __enter__(self) -> Lake:
        """The lake itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Release all connections; harmless when repeated."""
        with self._busy:
            for reader in self._readers.values():
                reader.close()
            self._readers.clear()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    @property
    def data_dir(self) -> Path:
        """Folder of the Parquet files; paths in `lake_file` are relative to it."""
        return self.lake_dir / "data"

    def commit(self, tables: Mapping[str, Rows], *, message: str, run_id: str) -> dict[str, int]:
        """Insert, in one transaction, every row whose key (`schemas.KEYS`) is not in its table yet.

        Repeating a commit changes nothing and makes no snapshot. The sha256 of each new data file is recorded in
        `lake_file` by the same transaction.

        Args:
            tables: table name -> rows; of rows with the same key in one batch the first is kept.
            message: what this commit is, for the snapshot's log.
            run_id: the flow run or command that caused it.

        Returns:
            Rows newly inserted, by table.

        Raises:
            SchemaError: a row does not fit its table; nothing was written.
            LakeError: the catalog or the disk refused; nothing was written.
        """
        return self._commit({name: to_table(name, rows) for name, rows in tables.items()}, frozenset(), message, run_id)

    def _commit(
        self, tables: Mapping[str, pa.Table], follows: frozenset[str], message: str, run_id: str
    ) -> dict[str, int]:
        """`commit` for checked tables.

        Rows of tables in `follows` belong to an attempt of the same transaction: they are new exactly when that
        attempt is, so their own (large) tables need not be searched.
        """
        with self._busy:
            con = self._writer
            if con is None:
                raise LakeError(f"{self.lake_dir}: the lake is open for reading only, or closed")
            try:
                with file_lock(self.lake_dir / "commit.lock", what="a commit to the lake"):
                    return retry(
                        lambda: self._transaction(con, tables, follows, message, run_id),
                        undo=lambda: con.execute("ROLLBACK"),
                    )
            except duckdb.Error as error:
                raise LakeError(f"commit {message!r} to {', '.join(tables)} refused: {error}") from error
            except OSError as error:
                raise LakeError(f"commit {message!r} to {', '.join(tables)}: {error}") from error

    def _transaction(
        self, con: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table], follows: frozenset[str], message: str,
        run_id: str,
    ) -> dict[str, int]:
        con.execute("BEGIN")
        snapshot = int(_one(con.execute("SELECT id FROM lake.current_snapshot()"))) + 1
        inserted: dict[str, int] = {}
        files: list[dict[str, Any]] = []
        # Attempts last: the tables that follow them ask which attempts are there already.
        for name in sorted(tables, key=lambda table: table == "attempt"):
            before = self._data_files(name)
            inserted[name] = _insert_new(con, name, tables[name], follows=name in follows)
            files += [self._file_row(name, path, snapshot) for path in sorted(self._data_files(name) - before)]
        if not any(inserted.values()):
            con.execute("ROLLBACK")
            return dict.fromkeys(tables, 0)
        _insert_new(con, "lake_file", to_table("lake_file", files), follows=False)
        con.execute("CALL lake.set_commit_message(?, ?, extra_info => ?)",
                    [f"dice {__version__}", message, json.dumps({"run_id": run_id})])
        con.execute("COMMIT")
        return {name: inserted[name] for name in tables}

    def _data_files(self, table: str) -> set[Path]:
        return set((self.data_dir / "main" / table).rglob("*.parquet"))

    def _file_row(self, table: str, path: Path, snapshot: int) -> dict[str, Any]:
        # DuckDB does not sync what it writes; a recorded file must survive a power cut.
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
        fsync_dir(path.parent)
        return {
            "path": path.relative_to(self.data_dir).as_posix(), "table_name": table, "sha256": sha256_file(path),
            "size_bytes": path.stat().st_size, "snapshot_id": snapshot, "recorded_at": dt.datetime.now(dt.UTC),
        }

    def query(self, sql: str, parameters: Sequence[Any] = (), *, as_of: int | None = None) -> pa.Table:
        """Run one reading statement over the tables, views and reports.

        Args:
            sql: SELECT, WITH, VALUES, DESCRIBE, SHOW, SUMMARIZE, or EXPLAIN of one of these; `?` for parameters.
            parameters: values of the `?`.
            as_of: snapshot id; None for the present.

        Raises:
            UsageError: DuckDB refuses the statement (its message is kept), it is no reading statement, or there is no
                such snapshot.
        """
        with self._busy:
            if as_of not in self._readers:
                self._readers[as_of] = Reader(self.lake_dir, as_of=as_of)
            return self._readers[as_of].query(sql, parameters)

    def stored_files(self, attempt_ids: Sequence[str]) -> dict[str, str]:
        """sha256 of the attempt file that each of `attempt_ids` was published from; unknown ids are absent."""
        with self._busy:
            if self._writer is None:
                raise LakeError(f"{self.lake_dir}: the lake is open for reading only, or closed")
            con = self._writer
            found = retry(lambda: con.execute(
                "SELECT attempt_id, file_sha256 FROM attempt WHERE attempt_id IN (SELECT unnest(?))",
                [list(attempt_ids)],
            ).fetchall())
        return dict(found)

    def snapshots(self) -> list[Snapshot]:
        """All committed states, oldest first."""
        rows = self.query(
            "SELECT snapshot_id, snapshot_time, author, commit_message, commit_extra_info "
            "FROM ducklake_snapshots('lake') ORDER BY snapshot_id"
        ).to_pylist()
        return [
            Snapshot(row["snapshot_id"], row["snapshot_time"], row["author"] or "", row["commit_message"] or "",
                     json.loads(row["commit_extra_info"] or "{}").get("run_id", ""))
            for row in rows
        ]


def _one(result: duckdb.DuckDBPyConnection) -> Any:
    row = result.fetchone()
    if row is None:
        raise LakeError("the catalog gave no row where it must give one")
    return row[0]


def _insert_new(con: duckdb.DuckDBPyConnection, name: str, rows: pa.Table, *, follows: bool) -> int:
    """Insert the rows of the batch that are not there yet; returns how many."""
    columns = ", ".join(SCHEMAS[name].names)
    keys = KEYS[name]
    present, match = (("attempt", ("attempt_id",)) if follows else (name, keys))
    on = " AND ".join(f"there.{key} = here.{key}" for key in match)
    numbered = rows.append_column("_row", pa.array(range(rows.num_rows), pa.int64()))
    con.register("_incoming", numbered)
    try:
        return int(_one(con.execute(
            f"INSERT INTO lake.main.{name} ({columns}) SELECT {columns} FROM _incoming AS here "
            f"WHERE NOT EXISTS (SELECT 1 FROM lake.main.{present} AS there WHERE {on}) "
            f"QUALIFY row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY _row) = 1 ORDER BY _row"
        )))
    finally:
        con.unregister("_incoming")


def _ensure_tables(con: duckdb.DuckDBPyConnection) -> None:
    """Create what is missing; refuse tables that have other columns than this version knows."""
    stored: dict[str, dict[str, str]] = {}
    for table, column, kind in con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'lake' "
        "ORDER BY column_index"
    ).fetchall():
        stored.setdefault(table, {})[column] = kind
    if "schema_version" in stored:
        version = int(_one(con.execute("SELECT max(version) FROM schema_version")))
        if version != SCHEMA_VERSION:
            raise LakeError(
                f"this lake has schema version {version}, this DICE reads version {SCHEMA_VERSION}: name another home "
                "(DICE_HOME), or read this one with the version that made it")
    for name, columns in stored.items():
        if name in SCHEMAS and list(columns) != SCHEMAS[name].names:
            differ = sorted(set(columns) ^ set(SCHEMAS[name].names)) or list(columns)
            raise LakeError(f"table {name} of this lake differs from this DICE's in: {', '.join(differ)}")
    if missing := [one for one in load_objects("schema") if one.name not in stored]:
        con.execute("BEGIN")
        for one in missing:
            con.execute(one.body)
        if "schema_version" not in stored:
            con.execute("CREATE TABLE schema_version (version BIGINT)")
            con.execute(f"INSERT INTO schema_version VALUES ({SCHEMA_VERSION})")
        con.execute("CALL lake.set_commit_message(?, ?)", [f"dice {__version__}", "create tables"])
        con.execute("COMMIT")
    # Outside the transaction because options take effect at once; repeating them changes nothing.
    options = {row[0] for row in con.execute("SELECT option_name FROM lake.options()").fetchall()}
    if "parquet_compression" not in options:
        con.execute("CALL lake.set_option('parquet_compression', 'zstd')")
    if "data_inlining_row_limit" not in options:
        con.execute(f"CALL lake.set_option('data_inlining_row_limit', '{_INLINED_ROWS}', table_name => 'lake_file')")
