"""Publishing: finished attempt files become rows of the lake, exactly once.

One publisher at a time. Files are read and verified, inserted in batches (one transaction each), and only then moved
aside; a kill at any point is repaired by publishing again, because an attempt that is in the lake is not inserted
twice. A file that cannot be believed is moved to `rejected/` with its reason, and the others go on.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dice_core.errors import AuditError, SchemaError, SourceError
from dice_core.files import file_lock, fsync_dir, write_atomic
from dice_core.lake.attempts import AttemptFile, read_attempt
from dice_core.lake.catalog import Lake
from dice_core.lake.rows import to_table
from dice_core.records import TimingSample

#: A transaction is closed when it holds this many timing samples, or this many files.
BATCH_SAMPLES = 50_000
BATCH_FILES = 1_000

_SAMPLE_FIELDS = tuple(one.name for one in dataclasses.fields(TimingSample))
_TABLES = ("environment", "problem", "problem_trait", "kernel", "build", "timing_sample", "attempt")


@dataclass(frozen=True)
class PublishReport:
    """What one publication did."""

    published: int = 0  #: attempts that are new in the lake
    already: int = 0  #: files whose attempt was there (a kill between commit and move, or a copy)
    duplicates: int = 0  #: files of an attempt that is in the lake with other content; moved to `duplicate/`
    rejected: int = 0  #: files that cannot be believed; moved to `rejected/`
    rows: dict[str, int] = field(default_factory=dict)  #: new rows by table

    @property
    def found(self) -> int:
        """All files looked at; the four counts add up to it."""
        return self.published + self.already + self.duplicates + self.rejected


_Files = list[tuple[Path, AttemptFile]]


def publish(lake: Lake, attempts_dir: Path, *, run_id: str, wait: bool = True) -> PublishReport:
    """Insert all finished attempt files of `attempts_dir` into the lake and move them aside.

    Published files go to `attempts_dir/../published/<YYYY-MM>/` (the month the attempt ended), unbelievable ones to
    `../rejected/` beside a `.reason.txt`, other files of a known attempt to `../duplicate/`. Attempts with an
    `INFRA_` verdict are published like all others.

    Args:
        lake: open for writing.
        attempts_dir: folder of finished attempt files; may be missing.
        run_id: for the snapshot's log.
        wait: wait for another publisher instead of failing.

    Raises:
        BusyError: another process publishes and `wait` is false.
        LakeError: the lake refused a batch; its files stay where they were.
    """
    if not attempts_dir.is_dir():
        return PublishReport()
    with file_lock(lake.lake_dir / "publish.lock", wait=wait, what="publishing attempts"):
        counts: Counter[str] = Counter()
        rows: Counter[str] = Counter()
        for files in _batches(attempts_dir, counts):
            believed, tables = _checked(files, attempts_dir, counts)
            if believed:
                rows.update(_commit(lake, tables, len(believed), run_id))
                _move(lake, believed, attempts_dir.parent, counts)
        return PublishReport(published=rows["attempt"], already=counts["already"] - rows["attempt"],
                             duplicates=counts["duplicate"], rejected=counts["rejected"], rows=dict(rows))


def _batches(attempts_dir: Path, counts: Counter[str]) -> Iterator[_Files]:
    files: _Files = []
    samples = 0
    for path in sorted(attempts_dir.glob("att_*.parquet")):
        try:
            content = read_attempt(path)
            if not path.name.startswith(f"{content.attempt.attempt_id}.") or not content.attempt.ended_at:
                raise SourceError(f"{path}: holds attempt {content.attempt.attempt_id}, "
                                  f"ended {content.attempt.ended_at or 'never'}")
        except (AuditError, SourceError) as error:
            _reject(path, attempts_dir, error, counts)
            continue
        files.append((path, content))
        samples += len(content.samples)
        if samples >= BATCH_SAMPLES or len(files) >= BATCH_FILES:
            yield files
            files, samples = [], 0
    if files:
        yield files


def _checked(files: _Files, attempts_dir: Path, counts: Counter[str]) -> tuple[_Files, dict[str, pa.Table]]:
    """The files whose contents fit the tables, and their rows; the others are rejected."""
    try:
        return files, _tables(files)
    except SchemaError:
        believed = []
        for path, content in files:
            try:
                _tables([(path, content)])
            except SchemaError as error:
                _reject(path, attempts_dir, error, counts)
            else:
                believed.append((path, content))
        return believed, _tables(believed)


def _tables(files: _Files) -> dict[str, pa.Table]:
    """The lake rows of a batch: converted together, since small Arrow tables cost more than what they hold."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES if name != "timing_sample"}
    samples: dict[str, list[Any]] = {name: [] for name in ("attempt_id", "sample", *_SAMPLE_FIELDS)}
    seen: set[str] = set()
    for _, content in files:
        attempt = content.attempt
        if attempt.attempt_id in seen:
            continue  # a second file of one attempt: `_move` sees which of them the lake took
        seen.add(attempt.attempt_id)
        stored = attempt.to_json()
        for name in ("stages", "evidence"):
            stored[f"{name}_json"] = _json(stored.pop(name))
        environment = content.environment
        rows["attempt"].append({**stored, "labels_json": _json(content.labels), "file_sha256": content.sha256})
        rows["environment"].append({
            "environment_id": attempt.environment_id, "identity_json": _json(environment.identity),
            "facts_json": _json(environment.facts),
            "first_seen_at": environment.facts.get("captured_at") or attempt.started_at,
        })
        rows["problem"].append({"problem_id": attempt.problem_id, "source": content.problem_source})
        rows["problem_trait"] += [
            {"problem_id": attempt.problem_id, "environment_id": attempt.environment_id,
             "protocol_version": attempt.protocol_version, "device": attempt.device, **trait}
            for trait in attempt.evidence.get("traits", ())
        ]
        rows["kernel"].append({"kernel_id": attempt.kernel_id, "source": content.kernel.source,
                               "language": content.kernel.language, "entry_point": content.kernel.entry_point})
        rows["build"] += [{"attempt_id": attempt.attempt_id, **asdict(one)} for one in content.builds]
        samples["attempt_id"] += [attempt.attempt_id] * len(content.samples)
        samples["sample"] += range(len(content.samples))
        for name in _SAMPLE_FIELDS:
            # Not `asdict`: its deep copies took two thirds of a publication's time.
            samples[name] += [getattr(one, name) for one in content.samples]
    tables = {name: to_table(name, found) for name, found in rows.items()}
    tables["timing_sample"] = to_table("timing_sample", samples)
    return tables


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True)


def _commit(lake: Lake, tables: dict[str, pa.Table], n_files: int, run_id: str) -> dict[str, int]:
    return lake._commit(  # the one caller that may vouch for what follows its attempt
        tables, frozenset({"build", "timing_sample"}), f"publish {n_files} attempt files", run_id
    )


def _move(lake: Lake, files: _Files, base: Path, counts: Counter[str]) -> None:
    """Move a committed batch's files aside by what the lake holds of them now."""
    stored = lake.stored_files([content.attempt.attempt_id for _, content in files])
    folders = set()
    for path, content in files:
        if stored[content.attempt.attempt_id] == content.sha256:
            month = dt.datetime.fromisoformat(content.attempt.ended_at).astimezone(dt.UTC).strftime("%Y-%m")
            folder = base / "published" / month
            folder.mkdir(parents=True, exist_ok=True)
            os.replace(path, folder / path.name)  # the name carries the content's hash: same name, same file
            folders.add(folder)
            counts["already"] += 1
        else:
            _put_aside(path, base / "duplicate",
                       f"the lake holds this attempt from a file with sha256 {stored[content.attempt.attempt_id]}")
            counts["duplicate"] += 1
    for folder in folders:
        fsync_dir(folder)


def _reject(path: Path, attempts_dir: Path, error: Exception, counts: Counter[str]) -> None:
    # Relative in the reason: the folder may be moved, and its place is nobody's business.
    _put_aside(path, attempts_dir.parent / "rejected", str(error).replace(f"{attempts_dir}/", ""))
    counts["rejected"] += 1


def _put_aside(path: Path, folder: Path, reason: str) -> None:
    """Move a file out of the way for good, with its reason beside it; never over another file."""
    folder.mkdir(parents=True, exist_ok=True)
    target, number = folder / path.name, 1
    while target.exists() and target.read_bytes() != path.read_bytes():
        number += 1
        target = folder / f"{path.name}.{number}"
    write_atomic(target.with_name(f"{target.name}.reason.txt"), reason + "\n")
    os.replace(path, target)
    fsync_dir(folder)

