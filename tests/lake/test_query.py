"""Reading with SQL: what is allowed, what is refused, how errors read."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dice_core.errors import UsageError
from dice_core.lake.catalog import Lake


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT verdict, count(*) FROM fct_attempt GROUP BY 1",
        "-- a comment\nWITH a AS (SELECT 1 AS x) SELECT x FROM a;",
        "/* c */ FROM rpt_speedup LIMIT 3",
        "DESCRIBE fct_speedup",
        "SHOW TABLES",
        "SUMMARIZE rpt_verdict",
        "EXPLAIN SELECT * FROM fct_attempt",
        "EXPLAIN ANALYZE SELECT count(attempt_id) FROM attempt",
        "VALUES (1), (2)",
        "SELECT unnest([1, 2, 3])",
        "SELECT * FROM range(3)",
    ],
)
def test_reading_statements_answer(filled: Lake, sql: str) -> None:
    assert filled.query(sql).num_rows > 0


def test_parameters_are_values_not_text(filled: Lake) -> None:
    hostile = "CORRECT' OR 1 = 1 --"
    sql = "SELECT count(*) AS n FROM fct_attempt WHERE verdict = ?"
    assert filled.query(sql, [hostile]).to_pylist() == [{"n": 0}]
    assert filled.query(sql, ["CORRECT"]).to_pylist()[0]["n"] > 0


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM attempt",
        "INSERT INTO counter VALUES ('r', 's', 't', 'n', 1)",
        "UPDATE attempt SET speedup = 100",
        "DROP TABLE attempt",
        "CREATE TABLE x AS SELECT 1",
        "SELECT 1; DROP TABLE attempt",
        "EXPLAIN ANALYZE DELETE FROM attempt",
        "EXPLAIN ANALYZE CREATE TEMP TABLE x AS SELECT 1",
        "explain (format json) explain analyze delete from attempt",
        "COPY attempt TO 'out.csv'",
        "ATTACH 'other.duckdb'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "PRAGMA database_list",
        "CALL ducklake_expire_snapshots('lake', versions => [1])",
        "SELECT * FROM ducklake_expire_snapshots('lake', versions => [1])",
        "SELECT * FROM ducklake_cleanup_old_files('lake', cleanup_all => true)",
        "SELECT * FROM enable_logging(storage = 'file', storage_path = 'log')",
        "SELECT (SELECT count(*) FROM query('DELETE FROM attempt'))",
        "",
        "   ",
        "-- nothing but a comment",
    ],
)
def test_everything_else_is_refused_and_reading_goes_on(filled: Lake, sql: str) -> None:
    with pytest.raises(UsageError, match="SQL"):
        filled.query(sql)
    assert filled.query("SELECT count(attempt_id) AS n FROM attempt").to_pylist() == [{"n": 96}]


def test_no_file_outside_the_lake_can_be_read(filled: Lake, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\nhidden,2\n")
    database = tmp_path / "secret.sqlite"
    with sqlite3.connect(database) as other:
        other.execute("CREATE TABLE t AS SELECT 'hidden' AS x")
    other.close()
    for sql in (
        f"SELECT * FROM '{secret}'",
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM read_text('{secret}')",
        f"SELECT * FROM glob('{tmp_path}/*')",
        f"SELECT * FROM sqlite_scan('{database}', 't')",
        f"WITH a AS (FROM sqlite_query('{database}', 'SELECT x FROM t')) SELECT 1 WHERE EXISTS (FROM a)",
        f"EXPLAIN ANALYZE SELECT * FROM sqlite_scan('{database}', 't')",
        f"DESCRIBE SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM read_parquet('/etc/passwd')",
    ):
        with pytest.raises(UsageError) as caught:
            filled.query(sql)
        assert "hidden" not in str(caught.value)


def test_python_variables_are_not_tables(filled: Lake) -> None:
    import pyarrow as pa

    visible = pa.table({"x": [1]})
    with pytest.raises(UsageError, match="visible"):
        filled.query("SELECT * FROM visible")
    assert visible.num_rows == 1


def test_a_mistake_gets_duckdbs_own_words(filled: Lake) -> None:
    with pytest.raises(UsageError, match="verdikt"):
        filled.query("SELECT verdikt FROM fct_attempt")
    with pytest.raises(UsageError, match="syntax error"):
        filled.query("SELEC 1")
