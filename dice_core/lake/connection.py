"""DuckDB connections to a lake: extensions from the installed wheels, never from the network; attach; retry.

Facts behind the settings (all measured): DuckDB would fetch a missing extension from the network unless told not to;
a relative DATA_PATH resolves against the working folder and a moved lake is refused without OVERRIDE_DATA_PATH;
concurrent commits on a SQLite catalog fail with "database is locked" unless the caller itself rolls back and retries.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import duckdb

from dice_core.errors import LakeError

T = TypeVar("T")

_OFFLINE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
_EXTENSIONS = ("sqlite_scanner", "ducklake")
_SMALL_BYTES = 64 << 20
_TRIES = 60
#: The statement's own fault, whatever words its message holds.
_MISTAKES = (duckdb.BinderException, duckdb.ParserException, duckdb.CatalogException, duckdb.ConversionException)
_TRANSIENT = ("database is locked", "database table is locked", "busy", "conflict")


def extension_path(name: str) -> Path:
    """The extension's file inside its wheel.

    Raises:
        LakeError: the wheel is not installed or carries another DuckDB version's file.
    """
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    roots = [Path(one) for one in (spec.submodule_search_locations or [])] if spec else []
    for root in roots:
        path = root / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        if path.is_file():
            return path
    raise LakeError(f"DuckDB extension {name} for DuckDB {duckdb.__version__} is not installed: "
                    f"pip install duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}")


@functools.cache
def _checked_extensions() -> tuple[str, ...]:
    """Paths of the extensions, after DuckDB has checked their signatures: once a process, since it takes 0.4 s."""
    paths = tuple(str(extension_path(name)) for name in _EXTENSIONS)
    with contextlib.closing(duckdb.connect(config={**_OFFLINE, "allow_unsigned_extensions": "false"})) as con:
        for path in paths:
            con.execute(f"LOAD {quoted(path)}")
    return paths


def quoted(text: str | Path) -> str:
    """A SQL string literal."""
    return "'" + str(text).replace("'", "''") + "'"


def connect(lake_dir: Path, *, read_only: bool, as_of: int | None = None) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with the lake attached as `lake` and made the default.

    Args:
        lake_dir: folder of `catalog.sqlite` and `data/`.
        read_only: refuse every change of the catalog.
        as_of: snapshot id to see the lake at; None for the present.
    """
    lake_dir = lake_dir.absolute()
    extensions = _checked_extensions()
    con = duckdb.connect(config={
        **_OFFLINE, "allow_unsigned_extensions": "true", "python_enable_replacements": "false",
    })
    try:
        for path in extensions:
            con.execute(f"LOAD {quoted(path)}")
        con.execute("SET TimeZone = 'UTC'")
        con.execute("SET enable_progress_bar = false")
        con.execute(f"SET temp_directory = {quoted(lake_dir / 'tmp')}")
        options = [
            *(["READ_ONLY"] if read_only else ["META_JOURNAL_MODE 'WAL'", "DATA_INLINING_ROW_LIMIT 0"]),
            *([f"SNAPSHOT_VERSION {as_of:d}"] if as_of is not None else []),
            f"DATA_PATH {quoted(f'{lake_dir}/data/')}",
            "OVERRIDE_DATA_PATH true",
            "META_BUSY_TIMEOUT 30000",
        ]
        catalog = quoted(f"ducklake:sqlite:{lake_dir / 'catalog.sqlite'}")
        retry(lambda: con.execute(f"ATTACH {catalog} AS lake ({', '.join(options)})"))
        con.execute("USE lake")
        if read_only and _stored_bytes(con) < _SMALL_BYTES:
            # Planning a query over DuckLake runs dozens of tiny catalog queries: on one thread it takes half the time.
            con.execute("SET threads = 1")
    except BaseException:
        con.close()
        raise
    return con


def _stored_bytes(con: duckdb.DuckDBPyConnection) -> int:
    row = con.execute("SELECT coalesce(sum(file_size_bytes), 0) FROM ducklake_table_info('lake')").fetchone()
    return int(row[0]) if row else 0


def retry(work: Callable[[], T], *, undo: Callable[[], object] | None = None) -> T:
    """Run `work`; on a lock conflict undo it, sleep a little (jittered, growing to one second) and run it again.

    Raises:
        LakeError: still locked after 60 tries.
        duckdb.Error: anything else that DuckDB refuses, after `undo`.
    """
    for attempt in range(_TRIES):
        try:
            return work()
        except BaseException as error:
            if undo is not None:
                with contextlib.suppress(duckdb.Error):
                    undo()
            transient = (isinstance(error, duckdb.Error) and not isinstance(error, _MISTAKES)
                         and any(word in str(error).lower() for word in _TRANSIENT))
            if not transient:
                raise
            last = error
        time.sleep(random.uniform(0.2, 1.0) * min(1.0, 0.02 * 2**attempt))
    raise LakeError(f"the lake's catalog stayed locked through {_TRIES} tries: {last}") from last
