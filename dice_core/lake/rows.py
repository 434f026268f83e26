"""Rows on their way into the lake: cast to the table's Arrow schema, or refused with table, column and row named."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from dice_core.errors import LakeError, SchemaError
from dice_core.schemas import KEYS, SCHEMAS

Rows: TypeAlias = pa.Table | Mapping[str, list[Any]] | Sequence[Mapping[str, Any]]


def to_table(name: str, rows: Rows) -> pa.Table:
    """`rows` (an Arrow table, lists by column, or one mapping a row) in exactly the schema of lake table `name`.

    Columns that are not given are null. Times may be ISO-8601 text with an offset or `Z`.

    Raises:
        LakeError: the lake has no such table.
        SchemaError: a column is unknown, has another type, is null where the key needs a value, or holds NaN or
            infinity (DuckDB sorts both above every number, so a filter would let them pass).
    """
    if name not in SCHEMAS:
        raise LakeError(f"the lake has no table {name!r}; it has {', '.join(SCHEMAS)}")
    schema = SCHEMAS[name]
    source: dict[str, Any]
    if isinstance(rows, pa.Table):
        given = list(rows.column_names)
        source = {column: rows.column(column) for column in given}
        size = rows.num_rows
    elif isinstance(rows, Mapping):
        given, source = list(rows), dict(rows)
        size = len(next(iter(rows.values()), []))
    else:
        given = sorted({column for row in rows for column in row})
        source = {column: [row.get(column) for row in rows] for column in given}
        size = len(rows)
    if unknown := [column for column in given if column not in schema.names]:
        raise SchemaError(f"{name}: no column {unknown[0]!r}; it has {', '.join(schema.names)}")
    arrays = []
    for field in schema:
        values = source.get(field.name)
        array = pa.nulls(size, field.type) if values is None else _cast(name, field, values)
        if field.name in KEYS[name] and array.null_count:
            row = pc.index(pc.is_null(array), True).as_py()
            raise SchemaError(f"{name}.{field.name} row {row}: null, but it is part of the key {KEYS[name]}")
        if pa.types.is_floating(field.type):
            _refuse_non_finite(name, field, array)
        arrays.append(array)
    return pa.table(arrays, schema=schema)


def _cast(name: str, field: pa.Field, values: Any) -> pa.Array | pa.ChunkedArray:
    try:
        if isinstance(values, pa.ChunkedArray):
            return values.cast(field.type)
        if pa.types.is_timestamp(field.type):
            values = [_time(value) for value in values]
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        where = _first_bad(field, values)
        raise SchemaError(f"{name}.{field.name}{where}: not {_words(field.type)}: {error}") from error


def _first_bad(field: pa.Field, values: Any) -> str:
    if isinstance(values, pa.ChunkedArray):
        return f" ({values.type})"
    for row, value in enumerate(values):
        try:
            pa.array([value], field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return f" row {row} ({str(value)[:60]!r})"
    return ""


def _words(kind: pa.DataType) -> str:
    names = {pa.string(): "text", pa.int64(): "a whole number", pa.float64(): "a number", pa.bool_(): "a boolean"}
    return names.get(kind, "a time with its offset")


def _time(value: Any) -> dt.datetime | None:
    if value is None:
        return None
    moment = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
    if moment.tzinfo is None:
        raise ValueError(f"{value!r} has no offset from UTC")
    return moment.astimezone(dt.UTC)


def _refuse_non_finite(name: str, field: pa.Field, array: pa.Array | pa.ChunkedArray) -> None:
    bad = pc.fill_null(pc.invert(pc.is_finite(array)), False)
    if pc.any(bad).as_py():
        row = pc.index(bad, True).as_py()
        raise SchemaError(f"{name}.{field.name} row {row}: {array[row].as_py()} is not a finite number; write null")
