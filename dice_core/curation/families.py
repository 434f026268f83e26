"""Problem families and the split between training and validation.

Records belong to one family when they share a problem name, a module structure (sizes and names blanked), a kernel, a
structure label or a parent, or when their modules are nearly the same text, directly or through others. A family is
never divided, or validation would hold sisters of what was trained.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dice_core.curation.near import canonical, near_pairs
from dice_core.curation.normalise import fingerprint, structure_fingerprint
from dice_core.files import sha256_bytes
from dice_core.records import TrainingRecord

#: Share of families that go to validation.
VALIDATION_SHARE = 0.10
#: From this many families on, validation is never empty.
MIN_FAMILIES = 10
#: A family with more than this share of all records stays in training.
LARGEST_SHARE = 0.20

#: Names that say nothing about the problem.
_GENERIC_NAMES = frozenset({"", "model", "module", "net", "network", "modelnew"})


def families(records: Sequence[TrainingRecord]) -> dict[str, str]:
    """Family of each record, by record id. A family is named after the smallest hash of the traits in it."""
    parent: dict[str, str] = {}

    def find(key: str) -> str:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    traits = {record.record_id: _traits(record) for record in records}
    for first, second in near_pairs({record.record_id: canonical(record.pytorch_code) for record in records}):
        traits[first].append(sha256_bytes(f"record {second}"))
    for keys in traits.values():
        for key in keys:
            parent.setdefault(key, key)
        first = find(keys[0])
        for key in keys[1:]:
            other = find(key)
            # The smaller hash becomes the root, so a family's name does not depend on the order of records.
            small, large = sorted((first, other))
            parent[large] = small
            first = small
    # Hashed again: the smallest of several hashes is not spread evenly, and the split reads it as a draw.
    return {identity: sha256_bytes(find(keys[0])) for identity, keys in traits.items()}


def split(records: Sequence[TrainingRecord], share: float = VALIDATION_SHARE) -> dict[str, str]:
    """`train` or `validation` for each record, by record id.

    A family goes to validation when its hash lies in the lowest `share` of the hash range, so more data does not move
    the families that were there. With `MIN_FAMILIES` or more, the lowest one goes there in any case, unless `share` is
    0.
    """
    if not share:
        return {record.record_id: "train" for record in records}
    family = families(records)
    sizes: dict[str, int] = {}
    for name in family.values():
        sizes[name] = sizes.get(name, 0) + 1
    allowed = sorted(name for name, size in sizes.items() if size <= LARGEST_SHARE * len(records))
    chosen = {name for name in allowed if int(name, 16) < share * 2.0**256}
    if not chosen and allowed and len(sizes) >= MIN_FAMILIES:
        chosen = {allowed[0]}
    if len(sizes) < MIN_FAMILIES or chosen == set(sizes):
        chosen = set()
    return {identity: "validation" if name in chosen else "train" for identity, name in family.items()}


def _traits(record: TrainingRecord) -> list[str]:
    name = re.sub(r"[^a-z0-9]+", "_", record.problem_name.lower()).strip("_")
    keys = [f"module {structure_fingerprint(canonical(record.pytorch_code))}"]
    keys.append(f"kernel {fingerprint(record.kernel_code)}")
    if name not in _GENERIC_NAMES:
        keys.append(f"name {name}")
    if record.structure:
        keys.append(f"structure {record.structure}")
    if record.parent_record_id:
        keys.append(f"record {record.parent_record_id}")
    keys.append(f"record {record.record_id}")
    return [sha256_bytes(key) for key in keys]
