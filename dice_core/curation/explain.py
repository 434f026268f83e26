"""What became of one source row: every decision in order, its measurements, its duplicates, and where it ended.

A row is named by its record id, the source's uuid, a quarantine id, `<source file id>#<locator>`, or the beginning of
one of these where that is unique. Rows that never became records (quarantine) are found too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dice_core.curation.versions import STEPS, Queryable
from dice_core.errors import UsageError

_FIND = """
with named as (
    select source_file_id, row_locator, record_id as name, record_id as id, problem_name from training_record
    union all
    select source_file_id, row_locator, uuid, record_id, problem_name from training_record
    union all
    select source_file_id, row_locator, quarantine_id, quarantine_id, null from quarantine
    union all
    select source_file_id, row_locator, json_extract_string(raw_json, '$.uuid'), quarantine_id,
        json_extract_string(raw_json, '$.problem_name')
    from quarantine where json_valid(raw_json)
    union all
    select source_file_id, row_locator, source_file_id || '#' || row_locator, record_id, problem_name
    from training_record
    union all
    select source_file_id, row_locator, source_file_id || '#' || row_locator, quarantine_id, null from quarantine
)
select source_file_id, row_locator, min(id) as id, min(problem_name) as problem_name, bool_or(name = $1) as exact
from named where starts_with(name, $1)
group by source_file_id, row_locator order by source_file_id, row_locator
"""
_RECORD = """
select record_id, uuid, problem_name, origin, structure, parent_record_id, language, claimed_speedup, problem_id,
    kernel_id, length(pytorch_code) as pytorch_chars, length(kernel_code) as kernel_chars, ingested_at
from training_record where source_file_id = ? and row_locator = ? order by record_id
"""
_SOURCE = "select uri, revision, sha256, licence, fetched_at from source_file where source_file_id = ?"
_DECISIONS = """
select decision.curation_id, decision.record_id, step, rule, verdict, reason, curation.started_at
from decision left join curation using (curation_id)
where decision.record_id in (select unnest(?))
"""
_ATTEMPTS = """
select attempt.attempt_id, attempt.verdict, attempt.honesty, attempt.device, attempt.plan, attempt.ordinal,
    attempt.environment_id, attempt.started_at, attempt.basis, attempt.speedup, attempt.speedup_low,
    attempt.speedup_high, attempt.baseline_us, attempt.candidate_us,
    count(sample.sample) filter (not sample.warmup) as timed_samples,
    count(sample.sample) filter (not sample.warmup and sample.side = 'candidate') as candidate_samples,
    count(sample.sample) filter (sample.checked) as checked_samples
from attempt left join timing_sample as sample using (attempt_id)
where attempt.problem_id in (select unnest(?)) and attempt.kernel_id in (select unnest(?))
group by all order by attempt.started_at, attempt.attempt_id
"""
_DUPLICATES = """
select distinct other.record_id, other.uuid, other.source_file_id, other.row_locator, decision.curation_id,
    decision.rule
from decision join training_record as other using (record_id)
where decision.step = 'dedup' and decision.verdict = 'drop' and contains(decision.reason, ?)
order by other.record_id, decision.curation_id
"""
_QUARANTINE = """
select quarantine_id, rule, field, value, quarantined_at from quarantine
where source_file_id = ? and row_locator = ? order by rule, field
"""
_MEMBERS = """
select member.dataset_version_id, version.curation_id, member.split, member.evidence, version.created_at
from dataset_member as member join dataset_version as version using (dataset_version_id)
where member.record_id in (select unnest(?)) order by version.created_at, member.dataset_version_id
"""


def explain(lake: Queryable, name: str) -> dict[str, Any]:
    """Everything that the lake knows about one row.

    Returns:
        `source` (file, locator), `records` (one, unless the same place gave several), `curations` (each with its
        decisions in the order of the steps and its outcome), `attempts` (with the summary of their timing),
        `duplicates` (rows that repeat it), `quarantine` (broken rules) and `versions` (split and evidence).

    Raises:
        UsageError: no row has that name, or several have; the message lists them.
    """
    source_file_id, locator = _find(lake, name)
    records = lake.query(_RECORD, (source_file_id, locator)).to_pylist()
    ids = [row["record_id"] for row in records]
    decisions = lake.query(_DECISIONS, (ids,)).to_pylist()
    versions = lake.query(_MEMBERS, (ids,)).to_pylist()
    quarantine = lake.query(_QUARANTINE, (source_file_id, locator)).to_pylist()
    reasons = " ".join(row["reason"] or "" for row in decisions)
    attempts = lake.query(_ATTEMPTS, ([row["problem_id"] for row in records],
                                      [row["kernel_id"] for row in records])).to_pylist()
    for row in attempts:
        row["decided"] = row["attempt_id"] in reasons  # a decision rests on it
    source = (lake.query(_SOURCE, (source_file_id,)).to_pylist() or [{}])[0]
    return {
        "source": {"source_file_id": source_file_id, "row_locator": locator, **source},
        "records": records,
        "curations": _by_curation(decisions, versions),
        "attempts": attempts,
        "duplicates": [row for one in ids for row in lake.query(_DUPLICATES, (one,)).to_pylist()],
        "duplicate_of": sorted(set(re.findall(r"\brec_[0-9a-f]{32}\b", " ".join(
            row["reason"] for row in decisions if row["step"] == "dedup" and row["verdict"] == "drop")))),
        "quarantine": quarantine,
        "versions": versions,
    }


def _find(lake: Queryable, name: str) -> tuple[str, str]:
    found = lake.query(_FIND, (name,)).to_pylist() if name.strip() else []
    found = [row for row in found if row["exact"]] or found
    if not found:
        raise UsageError(f"no row {name!r}: give a record id, a uuid, a quarantine id, <source file id>#<locator>, or "
                         "the beginning of one")
    if len(found) > 1:
        shown = "; ".join(f"{row['id']} ({row['row_locator']} of {row['source_file_id']})" for row in found[:5])
        more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
        raise UsageError(f"{name!r} names {len(found)} rows: {shown}{more}")
    return found[0]["source_file_id"], found[0]["row_locator"]


def _by_curation(decisions: Sequence[dict[str, Any]], versions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(decisions, key=lambda row: (str(row["started_at"]), row["curation_id"], _place(row["step"]),
                                                  row["verdict"] != "drop", row["rule"])):
        grouped.setdefault(row["curation_id"], []).append(row)
    names = ("record_id", "step", "rule", "verdict", "reason")
    return [
        {"curation_id": curation, "started_at": rows[0]["started_at"], "outcome": _outcome(curation, rows, versions),
         "decisions": [{name: row[name] for name in names} for row in rows]}
        for curation, rows in grouped.items()
    ]


def _outcome(curation: str, rows: Sequence[dict[str, Any]], versions: Sequence[dict[str, Any]]) -> str:
    if inside := [f"{one['dataset_version_id']} ({one['split']}, {one['evidence']})" for one in versions
                  if one["curation_id"] == curation]:
        return f"member of {', '.join(inside)}"
    if dropped := [row for row in rows if row["verdict"] == "drop"]:
        return f"dropped at {dropped[0]['step']} by {dropped[0]['rule']}"
    return "kept, but the curation made no version"


def _place(step: str) -> int:
    return STEPS.index(step) if step in STEPS else len(STEPS)
