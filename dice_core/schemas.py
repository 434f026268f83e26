"""Arrow schema and key of every lake table. `sql/schema/<table>.sql` says the same as DDL; a test compares them.

A row is the same row when its key is the same: `Lake.commit` inserts a row only if its key is not there yet, which is
what makes every step safe to repeat.
"""

from __future__ import annotations

import pyarrow as pa

_TEXT = pa.string()
_INT = pa.int64()
_REAL = pa.float64()
_BOOL = pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


SCHEMAS: dict[str, pa.Schema] = {
    "source_file": _schema(
        source_file_id=_TEXT, uri=_TEXT, revision=_TEXT, sha256=_TEXT, size_bytes=_INT, licence=_TEXT, fetched_at=_TIME
    ),
    # One row for each curation of one set of sources under one configuration.
    "curation": _schema(curation_id=_TEXT, run_id=_TEXT, config_json=_TEXT, source_files_json=_TEXT, started_at=_TIME,
                        ended_at=_TIME),
    "training_record": _schema(
        record_id=_TEXT, source_file_id=_TEXT, row_locator=_TEXT, uuid=_TEXT, problem_name=_TEXT, pytorch_code=_TEXT,
        kernel_code=_TEXT, reasoning=_TEXT, claimed_speedup=_REAL, language=_TEXT, origin=_TEXT, structure=_TEXT,
        parent_record_id=_TEXT, problem_id=_TEXT, kernel_id=_TEXT, ingested_at=_TIME,
    ),
    "decision": _schema(curation_id=_TEXT, record_id=_TEXT, step=_TEXT, rule=_TEXT, verdict=_TEXT, reason=_TEXT),
    "quarantine": _schema(
        quarantine_id=_TEXT, source_file_id=_TEXT, row_locator=_TEXT, rule=_TEXT, field=_TEXT, value=_TEXT,
        raw_json=_TEXT, quarantined_at=_TIME,
    ),
    # Rows in, kept and lost at each step of each run: the balance that the checks verify.
    "counter": _schema(run_id=_TEXT, scope=_TEXT, step=_TEXT, name=_TEXT, value=_INT),
    "problem": _schema(problem_id=_TEXT, source=_TEXT),
    "suite_problem": _schema(
        suite=_TEXT, level=_INT, number=_INT, name=_TEXT, problem_id=_TEXT, overrides_json=_TEXT
    ),
    # What a problem lets pass, by the referee; the first measurement in an environment counts.
    "problem_trait": _schema(
        problem_id=_TEXT, environment_id=_TEXT, protocol_version=_INT, trait=_TEXT, holds=_BOOL, evidence=_REAL,
        tolerance=_REAL, device=_TEXT,
    ),
    "kernel": _schema(kernel_id=_TEXT, source=_TEXT, language=_TEXT, entry_point=_TEXT),
    "environment": _schema(environment_id=_TEXT, identity_json=_TEXT, facts_json=_TEXT, first_seen_at=_TIME),
    "build": _schema(
        attempt_id=_TEXT, build_key=_TEXT, kernel_id=_TEXT, status=_TEXT, tier=_TEXT, artefact_sha256=_TEXT,
        seconds=_REAL, cpu_seconds=_REAL, cached=_BOOL, argv_json=_TEXT, log=_TEXT,
    ),
    "attempt": _schema(
        attempt_id=_TEXT, kernel_id=_TEXT, problem_id=_TEXT, environment_id=_TEXT, protocol_version=_INT, plan=_TEXT,
        device=_TEXT, ordinal=_INT, seed_commitment=_TEXT, seed=_TEXT, verdict=_TEXT, honesty=_TEXT, started_at=_TIME,
        ended_at=_TIME, stages_json=_TEXT, evidence_json=_TEXT, labels_json=_TEXT, basis=_TEXT, speedup=_REAL,
        speedup_low=_REAL, speedup_high=_REAL, baseline_us=_REAL, candidate_us=_REAL, kernelbench_correct=_BOOL,
        file_sha256=_TEXT,
    ),
    "timing_sample": _schema(
        attempt_id=_TEXT, sample=_INT, side=_TEXT, block=_INT, order_in_block=_INT, repetition=_INT, warmup=_BOOL,
        batch=_INT, device_us=_REAL, host_us=_REAL, checked=_BOOL, input_seed=_INT, judge_us=_REAL,
        end_to_end=_BOOL, flags=_TEXT,
    ),
    "dataset_version": _schema(
        dataset_version_id=_TEXT, name=_TEXT, merkle_root=_TEXT, parent_version_id=_TEXT, curation_id=_TEXT,
        recipe_json=_TEXT, funnel_json=_TEXT, n_records=_INT, path=_TEXT, created_at=_TIME,
    ),
    "dataset_member": _schema(dataset_version_id=_TEXT, record_id=_TEXT, split=_TEXT, evidence=_TEXT),
    "model_version": _schema(
        model_version_id=_TEXT, name=_TEXT, version=_TEXT, recipe_id=_TEXT, dataset_version_id=_TEXT,
        mlflow_run_id=_TEXT, digests_json=_TEXT, metrics_json=_TEXT, created_at=_TIME,
    ),
    "training_step": _schema(
        model_version_id=_TEXT, step=_INT, loss=_REAL, learning_rate=_REAL, gradient_norm=_REAL, tokens=_INT,
        seconds=_REAL,
    ),
    "evaluation": _schema(
        evaluation_id=_TEXT, run_id=_TEXT, name=_TEXT, suite=_TEXT, model_version_id=_TEXT, kernel_source=_TEXT,
        config_json=_TEXT, created_at=_TIME,
    ),
    # One row for each (problem, sample) of an evaluation: also those that produced no kernel (attempt_id is null).
    "evaluation_member": _schema(
        evaluation_id=_TEXT, suite=_TEXT, level=_INT, number=_INT, sample_id=_INT, problem_id=_TEXT, kernel_id=_TEXT,
        attempt_id=_TEXT, no_kernel_reason=_TEXT,
    ),
    # What others claimed about kernels that were evaluated here.
    "kernel_claim": _schema(
        evaluation_id=_TEXT, suite=_TEXT, level=_INT, number=_INT, sample_id=_INT, claim_source=_TEXT, model=_TEXT,
        claimed_compiled=_BOOL, claimed_correct=_BOOL, claimed_runtime_ms=_REAL, claimed_hardware=_TEXT,
    ),
    # sha256 of each data file at publication; `audit verify` re-hashes.
    "lake_file": _schema(path=_TEXT, table_name=_TEXT, sha256=_TEXT, size_bytes=_INT, snapshot_id=_INT,
                         recorded_at=_TIME),
}

KEYS: dict[str, tuple[str, ...]] = {
    "source_file": ("source_file_id",),
    "curation": ("curation_id",),
    "training_record": ("record_id",),
    "decision": ("curation_id", "record_id", "step", "rule"),
    "quarantine": ("quarantine_id",),
    "counter": ("run_id", "scope", "step", "name"),
    "problem": ("problem_id",),
    "suite_problem": ("suite", "level", "number", "problem_id"),
    "problem_trait": ("problem_id", "environment_id", "protocol_version", "trait"),
    "kernel": ("kernel_id",),
    "environment": ("environment_id",),
    "build": ("attempt_id", "build_key"),
    "attempt": ("attempt_id",),
    "timing_sample": ("attempt_id", "sample"),
    "dataset_version": ("dataset_version_id",),
    "dataset_member": ("dataset_version_id", "record_id"),
    "model_version": ("model_version_id",),
    "training_step": ("model_version_id", "step"),
    "evaluation": ("evaluation_id",),
    "evaluation_member": ("evaluation_id", "suite", "level", "number", "sample_id"),
    "kernel_claim": ("evaluation_id", "suite", "level", "number", "sample_id"),
    "lake_file": ("path",),
}
