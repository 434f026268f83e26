"""Attempts and raw samples read back from the lake as the records they were."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from dice_core.lake.catalog import Lake
from dice_core.records import Attempt, TimingSample


def stored_attempts(lake: Lake, attempt_ids: Iterable[str]) -> dict[str, Attempt]:
    """The published attempts among `attempt_ids`, by id."""
    found = lake.query("select * from attempt where attempt_id in (select unnest(?))", (list(attempt_ids),))
    return {row["attempt_id"]: _attempt(row) for row in found.to_pylist()}


def stored_samples(lake: Lake, attempt_ids: Iterable[str]) -> dict[str, list[TimingSample]]:
    """Raw timing samples by attempt, in the order they were taken. Attempts without samples are absent."""
    found = lake.query(
        "select * from timing_sample where attempt_id in (select unnest(?)) order by attempt_id, sample",
        (list(attempt_ids),),
    )
    samples: dict[str, list[TimingSample]] = {}
    for row in found.to_pylist():
        row.pop("sample")
        samples.setdefault(row.pop("attempt_id"), []).append(TimingSample(**row))
    return samples


def _attempt(row: dict[str, Any]) -> Attempt:
    fields = {name: row[name] for name in Attempt.__dataclass_fields__ if name in row}
    for name in ("started_at", "ended_at"):
        moment: datetime = fields[name]
        fields[name] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Attempt.from_json({**fields, "stages": json.loads(row["stages_json"]),
                              "evidence": json.loads(row["evidence_json"])})
