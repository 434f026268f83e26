"""Readings: what has been read of a file before, so that a night reads only what is new.

A reading is one content under one declaration, one joined file and one contract. Its counters are committed together
with its rows; ARCHITECTURE.md ("How a night knows what is new") tells the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dice_core.curation.balance import balance
from dice_core.curation.ingest import TASK, Ingested
from dice_core.curation.pipeline import Step
from dice_core.curation.sources import Source
from dice_core.records import SourceFile, TrainingRecord, make_id

Counters = Mapping[str, int]


@dataclass(frozen=True)
class Known:
    """A file that an earlier curation read: its records, and the counters of its first two steps."""

    file: SourceFile
    records: tuple[TrainingRecord, ...]
    ingest: Counters
    contract: Counters


def reading_id(source: Source, contract_sha256: str) -> str:
    """Id of reading this file: its content and all that decides what becomes of its rows before they are records."""
    joined = source.joined.file.sha256 if source.joined else ""
    return make_id("rdg", {"source": source.file.sha256, "declaration": source.dataset.sha256, "joined": joined,
                           "contract": contract_sha256})


def counters_by_file(ingested: Ingested, contract: Step) -> dict[str, tuple[Counters, Counters]]:
    """Counters of `ingest` and `contract` of each file that was read, by source file id."""
    rows = Counter(row.source_file_id for row in ingested.rows)
    tasks = Counter(row.source_file_id for row in ingested.tasks)
    kept = Counter(record.source_file_id for record in contract.records)
    unread: dict[str, list[str]] = {}
    for row in ingested.quarantine:
        unread.setdefault(row.source_file_id, []).append(row.rule)
    broken: dict[str, dict[str, str]] = {}
    for row in contract.quarantine:
        broken.setdefault(row.source_file_id, {}).setdefault(row.row_locator, row.rule)
    found: dict[str, tuple[Counters, Counters]] = {}
    for file in ingested.source_files:
        name = file.source_file_id
        if name not in ingested.readings:
            continue
        out = [*unread.get(name, []), *[TASK] * tasks[name]]
        found[name] = (
            balance("ingest", rows[name] + len(out), rows[name], out),
            balance("contract", rows[name], kept[name], broken.get(name, {}).values()),
        )
    return found


def with_known(
    ingested: Ingested, contract: Step, known: Sequence[Known], files: Sequence[SourceFile]
) -> tuple[Ingested, Step]:
    """The first two steps as if the known files had been read again; their records come first.

    Args:
        ingested: what was read now.
        contract: the contract's word on it.
        known: the files that the lake has.
        files: all source files of the curation, with those that rows were joined to.
    """
    if not known:
        return ingested, contract
    whole = replace(ingested, source_files=tuple(files),
                    counters=_sum([*(one.ingest for one in known), ingested.counters]))
    records = tuple(record for one in known for record in one.records)
    step = replace(contract, records=(*records, *contract.records),
                   counters=_sum([*(one.contract for one in known), contract.counters]))
    return whole, step


def _sum(counters: Iterable[Counters]) -> dict[str, int]:
    total: Counter[str] = Counter({"in": 0, "kept": 0})
    for one in counters:
        total.update(one)
    return {"in": total.pop("in"), "kept": total.pop("kept"), **dict(sorted(total.items()))}
