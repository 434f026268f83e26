"""Attempt files: one durable Parquet file for one attempt, the only thing that a worker's machine writes.

Rows are the raw timing samples (none when the candidate never got that far). The attempt itself, its builds, its
environment and both sources travel in the file's metadata under `dice.attempt`, so one file is complete evidence.
The name is `<attempt_id>.<first 16 hex of the file's sha256>.parquet`: a changed byte no longer fits the name.
Only pyarrow is needed here: GPU boxes import this module.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dice_core.errors import AuditError, SourceError
from dice_core.files import sha256_bytes, write_atomic
from dice_core.records import Attempt, Build, Environment, Kernel, Problem, TimingSample, WorkItem
from dice_core.schemas import SCHEMAS

_METADATA_KEY = b"dice.attempt"
_FORMAT = 1


@dataclass(frozen=True)
class AttemptFile:
    """All that one attempt left behind."""

    attempt: Attempt
    environment: Environment
    problem_source: str
    kernel: Kernel
    builds: tuple[Build, ...] = ()
    samples: tuple[TimingSample, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    sha256: str = ""  #: of the file; set when read

    def check(self) -> None:
        """Refuse contents that contradict each other.

        Raises:
            SourceError: ids do not fit the sources they name.
        """
        attempt = self.attempt
        problem = Problem("", 0, 0, "", self.problem_source).problem_id
        for what, stored, recomputed in (
            ("problem_id", attempt.problem_id, problem),
            ("kernel_id", attempt.kernel_id, self.kernel.kernel_id),
            ("environment_id", attempt.environment_id, self.environment.environment_id),
        ):
            if stored != recomputed:
                raise SourceError(f"attempt {attempt.attempt_id}: {what} is {stored}, its content gives {recomputed}")


def samples_table(attempt_id: str, samples: Sequence[TimingSample]) -> pa.Table:
    """Timing samples as rows of the lake's `timing_sample` table, numbered in order."""
    rows = [{"attempt_id": attempt_id, "sample": number, **vars(one)} for number, one in enumerate(samples)]
    return pa.Table.from_pylist(rows, schema=SCHEMAS["timing_sample"])


def write_attempt(folder: Path, content: AttemptFile) -> Path:
    """Write one attempt file durably; returns its path. Existing files of the same attempt are left alone."""
    content.check()
    payload = {
        "format": _FORMAT,
        "attempt": content.attempt.to_json(),
        "environment": asdict(content.environment),
        "problem_source": content.problem_source,
        "kernel": asdict(content.kernel),
        "builds": [asdict(build) for build in content.builds],
        "labels": content.labels,
    }
    table = samples_table(content.attempt.attempt_id, content.samples)
    table = table.replace_schema_metadata({_METADATA_KEY: json.dumps(payload).encode()})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    data = sink.getvalue()
    return write_atomic(folder / f"{content.attempt.attempt_id}.{sha256_bytes(data)[:16]}.parquet", data)


def finished_attempts(folder: Path) -> dict[str, Path]:
    """Attempt id -> file, for every finished attempt file in `folder` (by name only; nothing is opened)."""
    return {path.name.split(".", 1)[0]: path for path in sorted(folder.glob("att_*.parquet"))}


def settle(items: Iterable[WorkItem], environment_id: str, attempts: Iterable[Attempt]) -> dict[str, Attempt]:
    """What became of each item, by the item's attempt id: its attempt, or the last one that failed through our fault.

    Items of which neither is among `attempts` are absent.
    """
    by_id = {one.attempt_id: one for one in attempts}
    lost: dict[tuple[str, str, str, str, int], Attempt] = {}
    for one in sorted(by_id.values(), key=lambda one: one.started_at):
        if one.verdict.is_infra and one.environment_id == environment_id:
            lost[one.problem_id, one.kernel_id, one.plan, one.device, one.ordinal] = one
    settled = {}
    for item in items:
        wanted = item.attempt_id(environment_id)
        found = by_id.get(wanted) or lost.get((item.problem_id, item.kernel_id, item.plan, item.device, item.ordinal))
        if found is not None:
            settled[wanted] = found
    return settled


def read_attempt(path: Path) -> AttemptFile:
    """Read and verify one attempt file.

    Raises:
        AuditError: the bytes no longer fit the hash in the file's name.
        SourceError: not an attempt file, or its contents contradict each other.
    """
    data = path.read_bytes()
    digest = sha256_bytes(data)
    named = path.name.split(".")[1] if path.name.count(".") >= 2 else ""
    if not digest.startswith(named) or not named:
        raise AuditError(f"{path}: content hash {digest[:16]} does not fit the file's name ({named or 'none'})")
    try:
        # The plain reader: the dataset reader of pyarrow 25 can abort the process at interpreter exit.
        table = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True).read(use_threads=False)
        raw = (table.schema.metadata or {}).get(_METADATA_KEY)
        if raw is None:
            raise SourceError(f"{path}: no {_METADATA_KEY.decode()} metadata, so this is not an attempt file")
        payload: dict[str, Any] = json.loads(raw)
        if payload["format"] != _FORMAT:
            raise SourceError(f"{path}: attempt file format {payload['format']}, this version reads {_FORMAT}")
        columns = [name for name in SCHEMAS["timing_sample"].names if name not in ("attempt_id", "sample")]
        content = AttemptFile(
            attempt=Attempt.from_json(payload["attempt"]),
            environment=Environment(**payload["environment"]),
            problem_source=payload["problem_source"],
            kernel=Kernel(**payload["kernel"]),
            builds=tuple(Build(**build) for build in payload["builds"]),
            samples=tuple(TimingSample(**row) for row in table.select(columns).to_pylist()),
            labels=payload["labels"],
            sha256=digest,
        )
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise SourceError(f"{path}: not a readable attempt file: {error}") from error
    content.check()
    return content
