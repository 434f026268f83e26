"""The SQL files: form, agreement with the Arrow schemas, and every object runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dice_core.lake.catalog import Lake
from dice_core.lake.objects import load_objects, needed_views, ordered_views
from dice_core.lake.query import Reader
from dice_core.schemas import KEYS, SCHEMAS

DDL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN",
             "timestamp[us, tz=UTC]": "TIMESTAMPTZ"}
ALL = [(kind, one) for kind in ("schema", "views", "reports", "checks") for one in load_objects(kind)]


def test_ddl_and_arrow_schemas_say_the_same() -> None:
    assert {one.name for one in load_objects("schema")} == SCHEMAS.keys()
    for one in load_objects("schema"):
        table, body = re.fullmatch(r"CREATE TABLE IF NOT EXISTS (\w+) \((.*)\)", one.body, re.DOTALL).groups()  # type: ignore[union-attr]
        columns = [line.split() for line in body.strip().splitlines()]
        assert table == one.name
        assert [(c[0], c[1].rstrip(",")) for c in columns] == [
            (field.name, DDL_TYPES[str(field.type)]) for field in SCHEMAS[one.name]]
        assert {c[0] for c in columns if "NOT" in c} == set(KEYS[one.name])


def test_stored_types_are_the_arrow_types(filled: Lake) -> None:
    for name, schema in SCHEMAS.items():
        stored = filled.query(f"SELECT * FROM {name} LIMIT 0").schema
        assert [(field.name, field.type) for field in stored] == [(field.name, field.type) for field in schema], name


@pytest.mark.parametrize(("kind", "one"), ALL, ids=[one.name for _, one in ALL])
def test_each_file_states_grain_keys_and_units(kind: str, one: object, root: Path) -> None:
    header = one.header  # type: ignore[attr-defined]
    name = one.name  # type: ignore[attr-defined]
    for part in ("\ngrain: ", "\nkeys: ", "\nunits: "):
        assert part in f"\n{header}", f"sql/{kind}/{name}.sql has no {part.strip()}"
    prefix = {"schema": "", "views": ("dim_", "fct_"), "reports": "rpt_", "checks": "chk_"}[kind]
    assert name.startswith(prefix)
    assert ";" not in re.sub(r"--.*|'[^']*'", "", (root / "sql" / kind / f"{name}.sql").read_text())


def test_declared_keys_are_unique(filled: Lake) -> None:
    """The grain in the header is the truth: its key columns identify a row."""
    for one in ordered_views():
        (line,) = [part for part in one.header.splitlines() if part.startswith("keys:")]
        keys = line.removeprefix("keys:").strip()
        if keys == "none":
            assert filled.query(f"SELECT * FROM {one.name}").num_rows == 1
            continue
        (row,) = filled.query(f"SELECT count(*) AS n, count(DISTINCT ({keys})) AS keys FROM {one.name}").to_pylist()
        assert row["n"] == row["keys"], one.name
        assert row["n"] > 0, f"{one.name} shows nothing of the filled lake"


def test_every_object_runs_on_an_empty_lake(home: Path) -> None:
    reader = Reader(home / "lake", materialise=True)
    for one in ordered_views():
        rows = reader.query(f"SELECT * FROM {one.name}").num_rows
        assert rows == {"dim_t_quantile": 201, "rpt_total": 1}.get(one.name, 0), one.name
    reader.close()


def test_views_come_after_what_they_read() -> None:
    names = [one.name for one in needed_views(frozenset({"rpt_speedup"}))]
    assert names.index("fct_timing_sample") < names.index("fct_block") < names.index("fct_speedup")
    assert names[-1] == "rpt_speedup"
    assert "rpt_leaderboard" not in names


def test_t_quantiles_are_students(filled: Lake) -> None:
    rows = filled.query("SELECT df, t FROM dim_t_quantile ORDER BY df").to_pydict()
    assert rows["df"] == list(range(1, 202))
    np.testing.assert_allclose(rows["t"][:200], stats.t.ppf(0.975, np.arange(1, 201)), atol=1e-6)
    assert rows["t"][200] == pytest.approx(stats.norm.ppf(0.975), abs=1e-5)
