"""A dataset version made again from the lake alone, at the present or as of an old snapshot, to prove that it follows.

What the records, their decisions and their attempts say is applied again: each record's id is computed from its text,
each decision about its speed is taken again from the claim or the attempt, the mixture draws again, the families are
split again. Whatever differs from what was stored is an `AuditError`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dice_core.curation.cuke import CukeVersion, Kept, Recipe, assemble
from dice_core.curation.mixture import STEP, mix, mixture_from_text
from dice_core.curation.speedup_filter import MEASURED_RULE, Measurement, decide
from dice_core.curation.versions import RULES_VERSION, Queryable, StoredVersion
from dice_core.errors import AuditError, UsageError
from dice_core.records import Decision, Honesty, TrainingRecord, Verdict

_RECORDS = """
select record.* from training_record as record
where record.record_id in (select record_id from decision where curation_id = ?) order by record.record_id
"""
_DECISIONS = """
select record_id, step, rule, verdict, reason from decision where curation_id = ? order by record_id, step, rule
"""
_ATTEMPTS = """
select attempt_id, problem_id, kernel_id, environment_id, device, verdict, honesty, speedup, speedup_low, speedup_high
from attempt where attempt_id in (select unnest(?))
"""
_SOURCES = """
select source_file_id, uri, revision, sha256, size_bytes, licence from source_file
where source_file_id in (select unnest(?)) order by sha256
"""
_ATTEMPT_ID = re.compile(r"\batt_[0-9a-f]{32}\b")
_FILTERS = {"speedup": "threshold", "augment": "augment_threshold"}


class AsOf:
    """A lake seen at one snapshot."""

    def __init__(self, lake: Queryable, snapshot: int | None) -> None:
        """Look at `lake` as of `snapshot`; None for the present."""
        self._lake = lake
        self._snapshot = snapshot

    def query(self, sql: str, parameters: Sequence[Any] = (), *, as_of: int | None = None) -> pa.Table:
        """Run one reading statement."""
        return self._lake.query(sql, parameters, as_of=self._snapshot if as_of is None else as_of)


def rebuild(lake: Queryable, stored: StoredVersion) -> CukeVersion:
    """Make a version again and compare it with what is stored.

    Args:
        lake: the lake, or `AsOf` one of its snapshots.
        stored: the version, as that lake has it.

    Raises:
        UsageError: the version was made under other rules than this DICE applies.
        AuditError: a record's text does not give its id, a decision does not follow from its evidence, or the Merkle
            root or the id come out differently.
    """
    curation = stored.curation_id
    config: dict[str, str] = stored.recipe.get("config", {})
    if (rules := config.get("rules_version", "")) != str(RULES_VERSION):
        raise UsageError(f"{stored.version_id}: made under rules version {rules or 'none'}, this DICE applies version "
                         f"{RULES_VERSION}; the DICE that made it can rebuild it")
    records = {row["record_id"]: _record(row) for row in lake.query(_RECORDS, (curation,)).to_pylist()}
    decisions = [Decision(**row) for row in lake.query(_DECISIONS, (curation,)).to_pylist()]
    kept = _kept(lake, config, records, decisions)
    sources = _sources(lake, curation)
    mixture = mixture_from_text(config)
    members, dropped = mix(kept, mixture, {row["source_file_id"]: row["uri"] for row in sources})
    recorded = sorted((one for one in decisions if one.step == STEP), key=lambda one: one.record_id)
    if dropped != recorded:
        raise AuditError(f"{stored.version_id}: the mixture drops {len(dropped)} records now, "
                         f"{len(recorded)} are recorded, and they are not the same")
    if not members:
        raise AuditError(f"{stored.version_id}: no member is left of {stored.n_records}")
    recipe = Recipe(curation, config, [{name: value for name, value in row.items() if name != "source_file_id"}
                                       for row in sources], stored.recipe.get("environment", {}))
    made = assemble(members, recipe, funnel=stored.funnel, decisions=decisions,
                    validation_share=mixture.validation_share)
    for name, found, wanted in (("Merkle root", made.merkle_root, stored.merkle_root),
                                ("id", made.version_id, stored.version_id)):
        if found != wanted:
            raise AuditError(f"{stored.version_id}: made again, its {name} is {found}, recorded is {wanted} "
                             f"({len(made.members)} members, recorded are {stored.n_records})")
    return made


def _kept(
    lake: Queryable, config: Mapping[str, str], records: Mapping[str, TrainingRecord], decisions: Sequence[Decision]
) -> list[Kept]:
    by_filter = [one for one in decisions if one.step in _FILTERS and one.verdict != "flag"]
    attempts = _attempts(lake, by_filter)
    out = {one.record_id for one in decisions if one.verdict == "drop" and one.step not in (*_FILTERS, STEP)}
    kept = []
    for word in by_filter:
        record = records.get(word.record_id)
        if record is None:
            raise AuditError(f"record {word.record_id}: decided on, but not in the lake")
        if word.step == "augment" and _by_text(word):
            continue  # dropped for its text, before its speed was looked at
        named = _ATTEMPT_ID.search(word.reason)
        measured = attempts.get(named.group()) if named else None
        evidence: Any = "measured" if word.step == "augment" else config.get("evidence", "auto")
        again = decide(record, measured, evidence, float(config[_FILTERS[word.step]]), step=word.step)
        if again != word:
            raise AuditError(f"record {word.record_id}: its decision at {word.step} is recorded as {word.verdict} by "
                             f"{word.rule} ({word.reason}), its evidence gives {again.verdict} by {again.rule} "
                             f"({again.reason})")
        if word.verdict == "keep":
            if word.record_id in out:
                raise AuditError(f"record {word.record_id}: kept at {word.step}, but dropped by an earlier step")
            is_measured = word.rule == MEASURED_RULE
            kept.append(Kept(record, "measured" if is_measured else "claimed", measured if is_measured else None))
    return kept


def _by_text(word: Decision) -> bool:
    return word.verdict == "drop" and not word.reason.startswith(("measured", "claimed", "not measured"))


def _attempts(lake: Queryable, decisions: Sequence[Decision]) -> dict[str, Measurement]:
    named = sorted({one for word in decisions for one in _ATTEMPT_ID.findall(word.reason)})
    return {
        row["attempt_id"]: Measurement(**{**row, "verdict": Verdict(row["verdict"]),
                                          "honesty": Honesty(row["honesty"])})
        for row in lake.query(_ATTEMPTS, (named,)).to_pylist()
    }


def _record(row: Mapping[str, Any]) -> TrainingRecord:
    names = [one.name for one in dataclasses.fields(TrainingRecord)]
    record = TrainingRecord(**{name: row[name] for name in names})
    if record.record_id != row["record_id"]:
        raise AuditError(f"record {row['record_id']}: its text gives {record.record_id}")
    return record


def _sources(lake: Queryable, curation: str) -> list[dict[str, Any]]:
    found = lake.query("select source_files_json from curation where curation_id = ?", (curation,)).to_pylist()
    if not found:
        raise AuditError(f"curation {curation}: not in the lake")
    rows: list[dict[str, Any]] = lake.query(_SOURCES, (json.loads(found[0]["source_files_json"]),)).to_pylist()
    return rows
