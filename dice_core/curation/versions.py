"""Stored dataset versions: found by id, prefix or `latest`, and read back with every file checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from dice_core.curation.cuke import SPLITS, verify_version
from dice_core.errors import AuditError, UsageError

#: Raised when a rule of the funnel, the mixture or the split changes its meaning; part of every curation id.
RULES_VERSION = 2
LATEST = "latest"
#: The funnel's steps in order.
STEPS = ("ingest", "contract", "dedup", "overlap", "honesty", "speedup", "augment", "cuke")


class Queryable(Protocol):
    """A lake that is open for reading."""

    def query(self, sql: str, parameters: Sequence[Any] = (), *, as_of: int | None = None) -> pa.Table:
        """Run one reading statement."""


@dataclass(frozen=True)
class StoredVersion:
    """A row of `dataset_version`, and where its files are in this home."""

    version_id: str
    name: str
    merkle_root: str
    parent_version_id: str
    curation_id: str
    recipe: dict[str, Any]
    funnel: dict[str, dict[str, int]]
    n_records: int
    created_at: str
    folder: Path


def find_version(lake: Queryable, wanted: str, datasets_dir: Path) -> StoredVersion:
    """The version with that id or unique prefix, or the `latest`.

    Args:
        lake: the lake.
        wanted: what the user named.
        datasets_dir: folder of all datasets of this home. It may have been moved since the version was made, so the
            stored path is not used.

    Raises:
        UsageError: there is none, or several begin so.
    """
    rows = lake.query(
        "select * from dataset_version where ? = 'latest' or starts_with(dataset_version_id, ?) "
        "order by created_at desc, dataset_version_id", (wanted, wanted)).to_pylist()
    exact = [row for row in rows if row["dataset_version_id"] == wanted]
    if wanted == LATEST:
        rows = rows[:1]
    if not wanted or not rows:
        raise UsageError(f"no dataset version {wanted!r} in this home; `dice datasets ls` lists them")
    if not exact and len(rows) > 1:
        shown = ", ".join(row["dataset_version_id"] for row in rows[:5])
        raise UsageError(f"{wanted!r} is the beginning of {len(rows)} dataset versions: {shown}")
    row = (exact or rows)[0]
    return StoredVersion(
        version_id=row["dataset_version_id"], name=row["name"], merkle_root=row["merkle_root"],
        parent_version_id=row["parent_version_id"] or "", curation_id=row["curation_id"],
        recipe=json.loads(row["recipe_json"]), funnel=_ordered(json.loads(row["funnel_json"])),
        n_records=row["n_records"], created_at=str(row["created_at"]),
        folder=datasets_dir / row["name"] / row["dataset_version_id"],
    )


def _ordered(funnel: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The steps in their order, and `in` and `kept` before the reasons: stored JSON has its keys sorted."""
    steps = sorted(funnel, key=lambda step: (STEPS.index(step) if step in STEPS else len(STEPS), step))
    return {step: dict(sorted(funnel[step].items(), key=lambda one: (one[0].startswith("out:"), one[0])))
            for step in steps}


def read_members(version: StoredVersion) -> list[dict[str, Any]]:
    """All members as rows of `cuke.MEMBER_SCHEMA`, training first, after the version's files were checked.

    Raises:
        AuditError: a file is missing or altered, or the folder holds another version.
    """
    manifest = verify_version(version.folder)
    if manifest["merkle_root"] != version.merkle_root:
        raise AuditError(f"{version.folder}: Merkle root {manifest['merkle_root']}, the lake has {version.merkle_root}")
    rows: list[dict[str, Any]] = []
    for part in SPLITS:
        rows += pq.ParquetFile(version.folder / f"{part}.parquet").read(use_threads=False).to_pylist()
    return rows
