"""Reading the lake with SQL: one SELECT at a time, on a read-only, locked-down connection that sees nothing else.

Two walls. The statement is parsed first: only SELECT, WITH, VALUES, DESCRIBE, SHOW, SUMMARIZE and EXPLAIN of these, and
only table functions that touch no file and no catalog (DuckDB's own file guard does not cover `sqlite_scan`, and
`EXPLAIN ANALYZE` runs what it explains). Then DuckDB itself: catalog attached read-only, no file access outside the
lake's data folder, configuration locked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dice_core.errors import LakeError, UsageError
from dice_core.lake.connection import connect, quoted, retry
from dice_core.lake.objects import SqlObject, needed_views, ordered_views, words

_TABLE_FUNCTIONS = frozenset({
    "range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "ducklake_snapshots",
    "duckdb_columns", "duckdb_tables", "duckdb_views", "duckdb_functions", "pragma_table_info",
})
#: Statements with one of these words may ask which views there are.
_LISTINGS = frozenset({
    "show", "duckdb_tables", "duckdb_views", "duckdb_columns", "information_schema", "sqlite_master",
})
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?(\([^)]*\)\s*)?", re.IGNORECASE)
_COMMENT = re.compile(r"\A(\s*(--[^\n]*\n|/\*.*?\*/))+", re.DOTALL)


class Reader:
    """A read-only view of the lake at the present or at one snapshot, with all views and reports there to be read."""

    def __init__(self, lake_dir: Path, *, as_of: int | None = None, materialise: bool = False) -> None:
        """Attach and lock down.

        Args:
            lake_dir: folder of the catalog and the data.
            as_of: snapshot id; None for the present, which moves on as others commit.
            materialise: compute every view once and keep the rows, for a reader of many of them (the report).

        Raises:
            UsageError: there is no snapshot `as_of`, or it is older than the lake's tables.
            LakeError: the catalog cannot be opened.
        """
        try:
            self._con = connect(lake_dir, read_only=True, as_of=as_of)
        except duckdb.Error as error:
            if as_of is not None and "snapshot" in str(error).lower():
                raise UsageError(f"no snapshot {as_of} in this lake") from error
            raise LakeError(f"{lake_dir}: cannot open the lake: {error}") from error
        self._views: set[str] = set()
        try:
            self._con.execute("SELECT version FROM schema_version")
            for view in ordered_views() if materialise else ():
                # Raw timings are many and only pass through on their way to the block medians.
                self._create(view, "VIEW" if view.name == "fct_timing_sample" else "TABLE")
            allowed = ", ".join(quoted(f"{lake_dir.absolute() / folder}/") for folder in ("data", "tmp"))
            self._con.execute(f"SET allowed_directories = [{allowed}]")
            self._con.execute("SET enable_external_access = false")
            self._con.execute("SET lock_configuration = true")
        except duckdb.CatalogException as error:
            self._con.close()
            if as_of is not None:
                raise UsageError(f"snapshot {as_of} is older than the lake's tables: {error}") from error
            raise LakeError(f"{lake_dir}: {error}") from error
        except duckdb.Error as error:
            self._con.close()
            raise LakeError(f"{lake_dir}: cannot read the lake: {error}") from error

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """Run one reading statement.

        Raises:
            UsageError: not one reading statement, or DuckDB refuses it.
        """
        self._guard(sql)
        try:
            self._create_views(words(sql))
            result = retry(lambda: self._con.execute(sql, list(parameters)).to_arrow_table())
        except (duckdb.Error, UnicodeError) as error:
            raise UsageError(f"SQL: {error}") from error
        return result.replace_schema_metadata(None)

    def _create_views(self, named: frozenset[str]) -> None:
        """Define what the statement reads, when it is first read: a view costs some milliseconds to define."""
        listing = named & _LISTINGS
        for view in ordered_views() if listing else needed_views(named):
            if view.name not in self._views:
                self._create(view, "VIEW")

    def _create(self, view: SqlObject, kind: str) -> None:
        self._con.execute(f"CREATE TEMP {kind} {view.name} AS {view.body}")
        self._views.add(view.name)

    def close(self) -> None:
        """Release the catalog."""
        self._con.close()

    def _guard(self, sql: str) -> None:
        statement = _COMMENT.sub("", sql)
        if match := _EXPLAIN.match(statement):
            statement = statement[match.end():]
        try:
            found = self._con.extract_statements(statement)
            kinds = [one.type for one in found]
            row = self._con.execute("SELECT json_serialize_sql(?)", [statement]).fetchone()
        except (duckdb.Error, UnicodeError) as error:
            raise UsageError(f"SQL: {error}") from error
        if len(kinds) != 1:
            raise UsageError(f"SQL: one statement at a time, got {len(kinds)}")
        if kinds[0] != duckdb.StatementType.SELECT:
            raise UsageError(f"SQL: the lake is read with SELECT, WITH, DESCRIBE, SHOW or EXPLAIN, not {kinds[0].name}")
        tree = json.loads(row[0]) if row else {"error": True}
        if tree.get("error"):
            raise UsageError(f"SQL: {tree.get('error_message', 'cannot be parsed')}")
        for name in _table_functions(tree):
            if name not in _TABLE_FUNCTIONS:
                raise UsageError(f"SQL: table function {name} is not allowed here; allowed: "
                                 f"{', '.join(sorted(_TABLE_FUNCTIONS))}")


def _table_functions(node: Any) -> Iterator[str]:
    """Names of all table functions anywhere in a serialised statement."""
    if isinstance(node, dict):
        if node.get("type") == "TABLE_FUNCTION":
            yield str((node.get("function") or {}).get("function_name", "")).lower()
        for value in node.values():
            yield from _table_functions(value)
    elif isinstance(node, list):
        for value in node:
            yield from _table_functions(value)
