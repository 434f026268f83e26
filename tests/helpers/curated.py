"""Homes with real curations of small sources, made by the library alone (no flow, no arena)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import synthetic

from dice_core.curation import pipeline
from dice_core.curation.cuke import CukeVersion, write_version
from dice_core.curation.pipeline import CurationConfig, Measurements
from dice_core.curation.speedup_filter import Measurement
from dice_core.curation.tables import curation_tables, version_tables
from dice_core.lake.attempts import AttemptFile, write_attempt
from dice_core.lake.catalog import Lake
from dice_core.lake.publish import publish
from dice_core.records import Kernel, TrainingRecord, WorkItem

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = ROOT / "datasets" / "concur" / "contract.json"


@dataclass(frozen=True)
class Curated:
    """What one curation left in a home."""

    version: CukeVersion
    curation: str
    steps: Sequence[pipeline.Step]
    ingested: pipeline.Ingested

    def record(self, uuid: str) -> TrainingRecord:
        return next(one for one in self.steps[0].records if one.uuid == uuid)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], *, broken_line: bool = False) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows) + ("{broken\n" if broken_line else "")
    path.write_text(text, encoding="utf-8")
    return path


def attempt_for(record: TrainingRecord, number: int = 1, *, speedup: float = 3.0) -> AttemptFile:
    """A measured attempt of a record, with raw samples."""
    made = synthetic.make_attempt(number, speedup=speedup)
    item = WorkItem(record.pytorch_code, record.kernel_code, "cpu", "quick")
    attempt = replace(made.attempt, attempt_id=item.attempt_id(made.attempt.environment_id),
                      problem_id=item.problem_id, kernel_id=item.kernel_id)
    return replace(made, attempt=attempt, problem_source=record.pytorch_code, kernel=Kernel(record.kernel_code),
                   builds=())


def curate(
    home: Path, sources: Sequence[Path], config: CurationConfig | None = None, *, attempts: Sequence[AttemptFile] = (),
    **assembly: Any,
) -> Curated:
    """Curate sources into a home: files, rows, and (where given) published attempts as measured evidence."""
    config = config or CurationConfig()
    for one in attempts:
        write_attempt(home / "attempts" / "new", one)
    measured: Measurements = {(one.attempt.problem_id, one.attempt.kernel_id): Measurement.from_attempt(one.attempt)
                              for one in attempts}
    ingested = pipeline.ingest(sources)
    steps = [pipeline.contract(ingested, CONTRACT)]
    steps.append(pipeline.deduplicate(steps[-1]))
    steps.append(pipeline.check_overlap(steps[-1], None, config.overlap))
    steps.append(pipeline.check_honesty(steps[-1]))
    steps.append(pipeline.filter_speedup(steps[-1], config, measured))
    steps.append(pipeline.choose_members(config, ingested, steps))
    curation = pipeline.curation_id(ingested.source_files, config, evidence_digest=pipeline.evidence_digest(measured))
    version = pipeline.make_version(curation, config, ingested, steps, **assembly)
    folder = write_version(version, home / "datasets" / "cuke")
    tables = curation_tables("run_1", curation, config, ingested, steps, counters=version.funnel,
                             started_at="2026-12-01T08:00:00Z")
    with Lake.open(home) as lake:
        if attempts:
            publish(lake, home / "attempts" / "new", run_id="run_1")
        lake.commit({**tables, **version_tables(version, folder)}, message=f"curation {curation}", run_id="run_1")
    return Curated(version, curation, steps, ingested)
