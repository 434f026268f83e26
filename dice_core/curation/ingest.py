"""The first step of the funnel: all rows of all sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dice_core.curation.apply import NOT_SELECTED
from dice_core.curation.balance import balance
from dice_core.curation.columns import Kinds
from dice_core.curation.compression import EXPANDED_LIMIT_BYTES
from dice_core.curation.concur import RawRow, TaskRow
from dice_core.curation.sources import Source, SourceSpec, read_source
from dice_core.errors import UsageError
from dice_core.records import QuarantineRow, SourceFile

#: Counter of rows that are tasks: they have no kernel, so they become problems and no records.
TASK = "task_without_kernel"


@dataclass(frozen=True)
class Seen:
    """The columns that one data set's files had, and those that its layout reads."""

    kinds: Kinds
    used: tuple[str, ...]


@dataclass(frozen=True)
class Ingested:
    """Rows as read from all sources, in order."""

    rows: tuple[RawRow, ...]
    quarantine: tuple[QuarantineRow, ...]
    source_files: tuple[SourceFile, ...]
    counters: Mapping[str, int]
    notes: tuple[str, ...] = ()  #: what a person should know: files given twice, columns not used
    step: str = "ingest"
    tasks: tuple[TaskRow, ...] = ()
    seen: Mapping[str, Seen] = field(default_factory=dict)  #: by data set
    declarations: tuple[str, ...] = ()  #: hash of every declaration that rows were read by
    readings: Mapping[str, str] = field(default_factory=dict)  #: reading id by source file, of the files read here


def out_on_purpose(counters: Mapping[str, int]) -> int:
    """Rows that left at `ingest` and are no fault: not selected by the declaration, or tasks."""
    return counters.get(f"out:{NOT_SELECTED}", 0) + counters.get(f"out:{TASK}", 0)


def ingest(sources: Iterable[Source | SourceSpec | Path], *, limit_bytes: int = EXPANDED_LIMIT_BYTES) -> Ingested:
    """Read all rows of all sources. A file whose content was read already counts once and is noted.

    Raises:
        UsageError: no sources, or a file is not there.
        SourceError: a file is empty, truncated, damaged or of no known format.
        SchemaError: a file's columns are those of no declared data set.
    """
    rows: list[RawRow] = []
    tasks: list[TaskRow] = []
    quarantine: list[QuarantineRow] = []
    files: dict[str, SourceFile] = {}
    notes: list[str] = []
    seen: dict[str, Seen] = {}
    declarations: set[str] = set()
    joined: dict[str, SourceFile] = {}
    for given in sources:
        source = open_source(given, limit_bytes)
        if (first := files.get(source.file.sha256)) is not None:
            notes.append(f"{source.file.uri}: the same content as {first.uri}; its rows count once")
            continue
        files[source.file.sha256] = source.file
        for row in source.rows():
            if isinstance(row, RawRow):
                rows.append(row)
            elif isinstance(row, TaskRow):
                tasks.append(row)
            else:
                quarantine.append(row)
        if extra := source.applied.unused:
            notes.append(f"{source.file.uri}: columns not used: {', '.join(extra)}")
        if source.joined is not None:
            joined[source.joined.file.sha256] = source.joined.file
        declarations.add(source.dataset.sha256)
        _merge(seen, source)
    if not files:
        raise UsageError("curation needs at least one source file")
    reasons = Counter(row.rule for row in quarantine)
    counters = balance("ingest", len(rows) + len(tasks) + len(quarantine), len(rows),
                       [*reasons.elements(), *[TASK] * len(tasks)])
    # A file that only completes rows is a source too: with another one the records differ.
    return Ingested(tuple(rows), tuple(quarantine), tuple({**joined, **files}.values()), counters, tuple(notes),
                    tasks=tuple(tasks), seen=seen, declarations=tuple(sorted(declarations)))


def open_source(given: Source | SourceSpec | Path, limit_bytes: int = EXPANDED_LIMIT_BYTES) -> Source:
    """Find out what a source is, if that is not known yet (`read_source`)."""
    if isinstance(given, Source):
        return given
    spec = SourceSpec(given) if isinstance(given, Path) else given
    return read_source(spec.path, uri=spec.uri, revision=spec.revision, licence=spec.licence, dataset=spec.dataset,
                       join=spec.join, limit_bytes=limit_bytes)


def _merge(seen: dict[str, Seen], source: Source) -> None:
    """Several files of one data set: a column is there when one of them has it."""
    before = seen.get(source.dataset.name, Seen({}, ()))
    kinds = dict(before.kinds)
    for name, kind in source.kinds.items():
        kinds[name] = kinds.get(name, frozenset()) | kind
    used = dict.fromkeys((*before.used, *source.applied.layout.reads))
    seen[source.dataset.name] = Seen(kinds, tuple(used))
