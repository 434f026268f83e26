"""Readings back from the lake: the counters and records of files that were read before."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dice_core.lake.catalog import Lake
from dice_core.records import SourceFile, TrainingRecord

Counters = dict[str, int]

#: What a record is before the funnel: its language is found by the honesty step.
_FIELDS = tuple(name for name in TrainingRecord.__dataclass_fields__ if name != "language")


def stored_counters(lake: Lake, reading_ids: list[str]) -> dict[str, dict[str, Counters]]:
    """Reading id -> step (`ingest`, `contract`) -> counters, of those readings that the lake knows."""
    found = lake.query(
        "select distinct scope, step, name, value from counter where scope in (select unnest(?))", (reading_ids,)
    )
    readings: dict[str, dict[str, Counters]] = {}
    for row in found.to_pylist():
        readings.setdefault(row["scope"], {}).setdefault(row["step"], {})[row["name"]] = row["value"]
    return {key: steps for key, steps in readings.items() if {"ingest", "contract"} <= steps.keys()}


def stored_records(lake: Lake, source_file_id: str) -> list[TrainingRecord]:
    """The records that came from rows of one file, in the order of its rows."""
    found = lake.query(
        f"select {', '.join(_FIELDS)} from training_record where source_file_id = ? and origin = 'source' "
        "order by try_cast(split_part(row_locator, ' ', 2) as bigint), row_locator, record_id",
        (source_file_id,),
    )
    return [TrainingRecord(**row) for row in found.to_pylist()]


def stored_files(lake: Lake, source_file_ids: list[str]) -> Mapping[str, SourceFile]:
    """Source files by id."""
    found = lake.query("select * from source_file where source_file_id in (select unnest(?))", (source_file_ids,))
    return {row["source_file_id"]: _file(row) for row in found.to_pylist()}


def _file(row: dict[str, Any]) -> SourceFile:
    moment: datetime = row.pop("fetched_at")
    row.pop("source_file_id")
    return SourceFile(**row, fetched_at=moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
