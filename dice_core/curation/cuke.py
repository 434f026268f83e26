"""CuKe: the assembled dataset version, its identity and its files.

A version's id covers the Merkle root over its record ids, each member's split and evidence, the recipe with the
curation that made it, and the funnel. Equal inputs give the same id and the same bytes; an existing version is checked,
not rewritten.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dice_core.curation.cards import dataset_card
from dice_core.curation.croissant import croissant
from dice_core.curation.families import VALIDATION_SHARE, split
from dice_core.curation.merkle import merkle_root
from dice_core.curation.speedup_filter import Measurement
from dice_core.errors import AuditError, UsageError
from dice_core.files import file_lock, fsync_dir, sha256_bytes, sha256_file, write_atomic
from dice_core.records import Decision, TrainingRecord, canonical_json, make_id

NAME = "cuke"
MANIFEST = "manifest.json"
SPLITS = ("train", "validation")

MEMBER_SCHEMA = pa.schema(
    [
        ("record_id", pa.string()),
        ("uuid", pa.string()),
        ("problem_name", pa.string()),
        ("pytorch_code", pa.string()),
        ("kernel_code", pa.string()),
        ("reasoning", pa.string()),
        ("source", pa.string()),
        ("structure", pa.string()),
        ("claimed_speedup", pa.float64()),
        ("measured_speedup", pa.float64()),
        ("speedup_low", pa.float64()),
        ("speedup_high", pa.float64()),
        ("evidence", pa.string()),
        ("split", pa.string()),
    ]
)

#: step -> counter name (`in`, `kept`, `out:<reason>`) -> rows, in the order of the steps
Funnel = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Kept:
    """A record that passed the funnel, with what its speedup rests on."""

    record: TrainingRecord
    evidence: str  #: `measured` or `claimed`
    measurement: Measurement | None = None


@dataclass(frozen=True)
class Recipe:
    """What a version was made by and from; everything the card tells beside its members."""

    curation_id: str
    config: Mapping[str, str]
    sources: Sequence[Mapping[str, Any]]  #: uri, revision, sha256, size_bytes, licence of each source file
    environment: Mapping[str, str] = field(default_factory=dict)  #: what measured; empty when nothing was


@dataclass(frozen=True)
class CukeVersion:
    """An assembled version: members by record id, each with its split."""

    members: tuple[Kept, ...]
    splits: Mapping[str, str]
    recipe: Recipe
    funnel: Funnel
    decisions: tuple[Decision, ...]

    @property
    def merkle_root(self) -> str:
        """RFC 6962 root over the record ids."""
        return merkle_root(self.splits)

    @property
    def version_id(self) -> str:
        """Id over members, evidence, recipe and funnel; the environment is recorded, not part of it."""
        return make_id(
            "dsv",
            {
                "name": NAME,
                "merkle_root": self.merkle_root,
                "members": sha256_bytes(canonical_json([self._identity(member) for member in self.members])),
                "curation": self.recipe.curation_id,
                "config": dict(self.recipe.config),
                "funnel": {step: dict(counters) for step, counters in self.funnel.items()},
                "sources": sorted(str(source["sha256"]) for source in self.recipe.sources),
            },
        )

    def rows(self, part: str) -> list[dict[str, Any]]:
        """The members of one split as rows of `MEMBER_SCHEMA`."""
        return [self._row(member) for member in self.members if self.splits[member.record.record_id] == part]

    def count(self, part: str) -> int:
        """Number of members in one split."""
        return sum(1 for place in self.splits.values() if place == part)

    def _identity(self, member: Kept) -> list[str]:
        row = self._row(member)
        numbers = [repr(row[name]) for name in ("claimed_speedup", "measured_speedup", "speedup_low", "speedup_high")]
        attempt = member.measurement.attempt_id if member.measurement else ""
        return [row["record_id"], row["split"], row["evidence"], sha256_bytes(row["reasoning"]), attempt, *numbers]

    def _row(self, member: Kept) -> dict[str, Any]:
        record, measured = member.record, member.measurement
        return {
            "record_id": record.record_id,
            "uuid": record.uuid,
            "problem_name": record.problem_name,
            "pytorch_code": record.pytorch_code,
            "kernel_code": record.kernel_code,
            "reasoning": record.reasoning,
            "source": f"{record.origin}:{record.source_file_id}#{record.row_locator}",
            "structure": record.structure,
            "claimed_speedup": record.claimed_speedup,
            "measured_speedup": measured.speedup if measured else None,
            "speedup_low": measured.speedup_low if measured else None,
            "speedup_high": measured.speedup_high if measured else None,
            "evidence": member.evidence,
            "split": self.splits[record.record_id],
        }


def assemble(
    kept: Sequence[Kept], recipe: Recipe, *, funnel: Funnel, decisions: Sequence[Decision] = (),
    validation_share: float = VALIDATION_SHARE,
) -> CukeVersion:
    """Order the members, split them by family, fix the version.

    Args:
        kept: what passed the funnel, in any order.
        recipe: how it was made.
        funnel: counters of every step.
        decisions: the decision trail of every record that met the funnel (kept ones and dropped ones).
        validation_share: share of problem families that go to validation.

    Raises:
        UsageError: nothing was kept.
    """
    if not kept:
        raise UsageError("no record passed the funnel: a version needs at least one (see the counters of each step)")
    members = tuple(sorted(kept, key=lambda member: member.record.record_id))
    splits = split([member.record for member in members], validation_share)
    return CukeVersion(members, splits, recipe, funnel, tuple(decisions))


def write_version(version: CukeVersion, parent: Path) -> Path:
    """Write `parent/<version id>/`, whole or not at all; check it instead where it exists.

    Files: train.parquet, validation.parquet, sft_train.json, sft_validation.json (`prompt` and `response`, as
    LLaMA-Factory's SDAR fork reads them), README.md (the card), croissant.json and manifest.json.

    Raises:
        AuditError: the folder exists, but its bytes differ from its manifest.
    """
    folder = parent / version.version_id
    with file_lock(parent / ".write.lock", what=f"writing {folder}"):
        for left_over in parent.glob(".dsv_*.tmp"):  # of a writer that was killed: the lock says that none is at work
            shutil.rmtree(left_over)
        if folder.exists():
            verify_version(folder, version)
            return folder
        work = Path(tempfile.mkdtemp(prefix=f".{version.version_id}.", suffix=".tmp", dir=parent))
        try:
            for name, data in _files(version).items():
                write_atomic(work / name, data)
            work.chmod(0o755)
            os.rename(work, folder)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
        fsync_dir(parent)
    return folder


def verify_version(folder: Path, version: CukeVersion | None = None) -> dict[str, Any]:
    """Re-hash a written version and compare it with its manifest (and with `version`, where given).

    Returns:
        The manifest.

    Raises:
        AuditError: a file is missing or altered, or the members do not give the recorded Merkle root.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
        recorded = {name: entry["sha256"] for name, entry in manifest["files"].items()}
        ids = [identity for part in SPLITS for identity in manifest["members"][part]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AuditError(f"{folder / MANIFEST}: unreadable: {error!r}") from None
    for name, sha256 in recorded.items():
        path = folder / name
        if not path.is_file():
            raise AuditError(f"{path}: missing, but the manifest lists it")
        if (found := sha256_file(path)) != sha256:
            raise AuditError(f"{path}: sha256 is {found}, the manifest says {sha256}")
    if merkle_root(ids) != manifest["merkle_root"]:
        raise AuditError(f"{folder}: the members' Merkle root is not the recorded one")
    if version is not None:
        for name, wanted in (("version_id", version.version_id), ("merkle_root", version.merkle_root)):
            if manifest[name] != wanted:
                raise AuditError(f"{folder}: {name} is {manifest[name]}, expected {wanted}")
    return manifest


def _files(version: CukeVersion) -> dict[str, bytes]:
    # The one prompt of training, rollout and evaluation; imported late because it brings the tokenizer library.
    from dice_core.model.prompts import generation_prompt, kernel_response

    files: dict[str, bytes] = {}
    for part in SPLITS:
        rows = version.rows(part)
        files[f"{part}.parquet"] = _parquet(rows)
        pairs = [
            {"prompt": generation_prompt(row["pytorch_code"]), "response": kernel_response(row["kernel_code"])}
            for row in rows
        ]
        files[f"sft_{part}.json"] = _json(pairs)
    files["README.md"] = dataset_card(version).encode()
    files["croissant.json"] = croissant(version, files)
    recipe = version.recipe
    manifest = {
        "name": NAME,
        "version_id": version.version_id,
        "merkle_root": version.merkle_root,
        "merkle_rule": "RFC 6962 section 2.1, SHA-256, over the sorted record ids",
        "curation_id": recipe.curation_id,
        "config": dict(recipe.config),
        "sources": [dict(source) for source in recipe.sources],
        "environment": dict(recipe.environment),
        "funnel": {step: dict(counters) for step, counters in version.funnel.items()},
        "members": {part: [row["record_id"] for row in version.rows(part)] for part in SPLITS},
        "files": {
            name: {"sha256": sha256_bytes(data), "size_bytes": len(data)} for name, data in sorted(files.items())
        },
    }
    files[MANIFEST] = _json(manifest)
    return files


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, MEMBER_SCHEMA, compression="zstd", write_page_checksum=True) as writer:
        # The `datasets` package cannot read a row group of no rows; a file of no row groups is fine.
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema=MEMBER_SCHEMA))
    return buffer.getvalue()


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
