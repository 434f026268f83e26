"""What differs between two dataset versions: members, their evidence and split, funnel, options, sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dice_core.curation.versions import Queryable, StoredVersion

_MEMBERS = """
select member.record_id, member.split, member.evidence, record.uuid, record.problem_name, record.problem_id,
    record.kernel_id, record.source_file_id, record.row_locator, word.reason
from dataset_member as member
left join training_record as record using (record_id)
left join (
    select record_id, max(reason) as reason from decision
    where curation_id = $2 and verdict = 'keep' and step in ('speedup', 'augment') group by record_id
) as word using (record_id)
where member.dataset_version_id = $1 order by member.record_id
"""
_DROPPED = """
select record_id, step, rule, reason from decision where curation_id = ? and verdict = 'drop'
qualify row_number() over (
    partition by record_id
    order by list_position(['dedup', 'overlap', 'honesty', 'speedup', 'augment', 'cuke'], step), rule
) = 1
"""
_SOURCES = """
select source_file_id, uri, revision, sha256, licence from source_file
where source_file_id in (select unnest(?)) order by source_file_id
"""


def diff(lake: Queryable, old: StoredVersion, new: StoredVersion) -> dict[str, Any]:
    """Compare two versions.

    Returns:
        `added` and `removed` members (a removed one with the rule that dropped it in the new curation), `moved` (the
        same pair of sources under another record id, because its file changed), `changed` (split, evidence, or the
        numbers that keep it), `funnel`, `config` and `sources` differences, and `same`: whether nothing differs.
    """
    before, after = _members(lake, old), _members(lake, new)
    gone = [row for key, row in before.items() if key not in after]
    come = [row for key, row in after.items() if key not in before]
    moved, gone, come = _moved(gone, come)
    dropped = {row["record_id"]: row for row in lake.query(_DROPPED, (new.curation_id,)).to_pylist()}
    for row in gone:
        word = dropped.get(row["record_id"])
        row["why"] = (f"dropped at {word['step']} by {word['rule']}: {word['reason']}" if word
                      else "not among what the new curation kept")
    changed = [change for key in sorted(before.keys() & after.keys()) if (change := _change(before[key], after[key]))]
    result: dict[str, Any] = {
        "old": old.version_id, "new": new.version_id, "members": {"old": len(before), "new": len(after)},
        "added": come, "removed": gone, "moved": moved, "changed": changed,
        "funnel": _values(_flat(old.funnel), _flat(new.funnel)),
        "config": _values(old.recipe.get("config", {}), new.recipe.get("config", {})),
        "environment": _values(old.recipe.get("environment", {}), new.recipe.get("environment", {})),
        "sources": _sources(lake, old, new),
    }
    lists = ("added", "removed", "moved", "changed", "funnel", "config", "environment")
    result["same"] = not any(result[name] for name in lists) and not any(result["sources"].values())
    return result


def _members(lake: Queryable, version: StoredVersion) -> dict[str, dict[str, Any]]:
    rows = lake.query(_MEMBERS, (version.version_id, version.curation_id)).to_pylist()
    return {row["record_id"]: row for row in rows}


def _moved(
    gone: list[dict[str, Any]], come: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    pairs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in come:
        pairs.setdefault((row["problem_id"], row["kernel_id"]), []).append(row)
    moved = []
    for row in list(gone):
        if there := pairs.get((row["problem_id"], row["kernel_id"])):
            other = there.pop(0)
            gone.remove(row)
            come.remove(other)
            moved.append({"old": row["record_id"], "new": other["record_id"], "problem_name": row["problem_name"],
                          **_change(row, other)})
    return moved, gone, come


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: {"old": before[name], "new": after[name]} for name in ("split", "evidence", "reason")
             if before[name] != after[name]}
    return {"record_id": after["record_id"], "problem_name": after["problem_name"], **found} if found else {}


def _flat(funnel: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {f"{step} {name}": value for step, names in funnel.items() for name, value in names.items()}


def _values(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = [*before, *(name for name in after if name not in before)]
    return [{"name": name, "old": before.get(name), "new": after.get(name)} for name in names
            if before.get(name) != after.get(name)]


def _sources(lake: Queryable, old: StoredVersion, new: StoredVersion) -> dict[str, list[dict[str, Any]]]:
    before, after = (_source_ids(lake, version) for version in (old, new))
    return {"only_old": lake.query(_SOURCES, (sorted(before - after),)).to_pylist(),
            "only_new": lake.query(_SOURCES, (sorted(after - before),)).to_pylist()}


def _source_ids(lake: Queryable, version: StoredVersion) -> set[str]:
    found = lake.query("select source_files_json from curation where curation_id = ?", (version.curation_id,))
    return {identity for row in found.to_pylist() for identity in json.loads(row["source_files_json"])}
