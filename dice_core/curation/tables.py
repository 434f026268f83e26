"""Curation results as rows of the lake's tables (`dice_core.schemas`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dice_core.curation.cuke import NAME, CukeVersion, Funnel
from dice_core.curation.pipeline import CurationConfig, Ingested, Step
from dice_core.curation.readings import counters_by_file
from dice_core.records import SourceFile, TrainingRecord, canonical_json, problem_id, utc_now

Rows = list[dict[str, Any]]


def curation_tables(
    run_id: str,
    curation: str,
    config: CurationConfig,
    ingested: Ingested,
    steps: Sequence[Step],
    *,
    counters: Funnel,
    started_at: str,
    more_sources: Sequence[SourceFile] = (),
) -> dict[str, Rows]:
    """All rows of one curation but its dataset version.

    Args:
        run_id: the flow run, for the counters.
        curation: the curation's id: the counters' scope and the decisions' key.
        config: its options.
        ingested: the first step.
        steps: all later steps, in order.
        counters: `pipeline.funnel` of them.
        started_at: UTC ISO-8601.
        more_sources: sources of records that did not come through `ingest` (augmentation).
    """
    now = utc_now()
    records: dict[str, TrainingRecord] = {}
    for step in steps:
        # Later steps know more of a record (its language), under the same id.
        records |= {record.record_id: record for record in (*step.entered, *step.records)}
    quarantine = [*ingested.quarantine, *(row for step in steps for row in step.quarantine)]
    files = {file.source_file_id: file for file in (*ingested.source_files, *more_sources)}
    sources = [{"source_file_id": file.source_file_id, **asdict(file)} for file in files.values()]
    pairs = record_tables(records.values(), now)
    known = {row["problem_id"] for row in pairs["problem"]}
    tasks = {problem_id(task.pytorch_code): task.pytorch_code for task in ingested.tasks}
    pairs["problem"] += [{"problem_id": key, "source": code} for key, code in tasks.items() if key not in known]
    decisions = [{"curation_id": curation, **asdict(decision)} for step in steps for decision in step.decisions]
    return {
        "source_file": sources,
        "curation": [
            {
                "curation_id": curation,
                "run_id": run_id,
                "config_json": canonical_json(config.as_text()),
                "source_files_json": canonical_json(sorted(source["source_file_id"] for source in sources)),
                "started_at": started_at,
                "ended_at": now,
            }
        ],
        **pairs,
        "decision": decisions,
        "quarantine": [
            {"quarantine_id": row.quarantine_id, **asdict(row), "quarantined_at": now} for row in quarantine
        ],
        "counter": [*counter_rows(run_id, curation, counters), *_reading_rows(run_id, ingested, steps)],
    }


def record_tables(records: Iterable[TrainingRecord], ingested_at: str) -> dict[str, Rows]:
    """Rows of `training_record`, and of `problem` and `kernel` for the sources that the records hold."""
    rows: Rows = []
    problems: dict[str, dict[str, Any]] = {}
    kernels: dict[str, dict[str, Any]] = {}
    for record in records:
        ids = {"record_id": record.record_id, "problem_id": record.problem_id, "kernel_id": record.kernel_id}
        rows.append({**asdict(record), **ids, "ingested_at": ingested_at})
        problems[ids["problem_id"]] = {"problem_id": ids["problem_id"], "source": record.pytorch_code}
        kernels[ids["kernel_id"]] = {
            "kernel_id": ids["kernel_id"],
            "source": record.kernel_code,
            "language": record.language,
            "entry_point": "ModelNew",
        }
    return {"training_record": rows, "problem": list(problems.values()), "kernel": list(kernels.values())}


def _reading_rows(run_id: str, ingested: Ingested, steps: Sequence[Step]) -> Rows:
    """Counters of each file that was read, so that a later curation need not read it again."""
    contract = next((step for step in steps if step.step == "contract"), None)
    if contract is None:
        return []
    found = counters_by_file(ingested, contract)
    return [row for name, (first, second) in found.items()
            for row in counter_rows(run_id, ingested.readings[name], {"ingest": first, "contract": second})]


def counter_rows(run_id: str, scope: str, counters: Mapping[str, Mapping[str, int]]) -> Rows:
    """One row for each counter of each step."""
    return [
        {"run_id": run_id, "scope": scope, "step": step, "name": name, "value": value}
        for step, values in counters.items()
        for name, value in values.items()
    ]


def version_tables(version: CukeVersion, folder: Path, *, parent_version_id: str = "") -> dict[str, Rows]:
    """Rows of `dataset_version` and `dataset_member`."""
    identity = version.version_id
    return {
        "dataset_version": [
            {
                "dataset_version_id": identity,
                "name": NAME,
                "merkle_root": version.merkle_root,
                "parent_version_id": parent_version_id,
                "curation_id": version.recipe.curation_id,
                "recipe_json": canonical_json(
                    {"config": dict(version.recipe.config), "environment": dict(version.recipe.environment)}
                ),
                "funnel_json": canonical_json({step: dict(values) for step, values in version.funnel.items()}),
                "n_records": len(version.members),
                "path": str(folder),
                "created_at": utc_now(),
            }
        ],
        "dataset_member": [
            {
                "dataset_version_id": identity,
                "record_id": member.record.record_id,
                "split": version.splits[member.record.record_id],
                "evidence": member.evidence,
            }
            for member in version.members
        ],
    }
