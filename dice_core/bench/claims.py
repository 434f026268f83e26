"""Kernels that come with a claim: what somebody else's run of KernelBench said about them.

Rows have KernelBench's `level` and `problem_id`, a kernel, who wrote it (`model`), and what was claimed
(`claimed_compiled`, `claimed_correct`, `claimed_runtime_ms`, `claimed_hardware`). They become an evaluation whose
members carry the claim into the lake, where it stands beside our verdict (`sql/reports/rpt_claim.sql`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dice_core.bench.evaluation import Evaluation, Member
from dice_core.errors import SourceError, UsageError
from dice_core.files import sha256_bytes
from dice_core.records import Problem

_NEEDED = ("level", "problem_id", "model", "kernel_code", "claimed_compiled", "claimed_correct")


def choose(rows: Sequence[Mapping[str, Any]], count: int, seed: int) -> list[Mapping[str, Any]]:
    """`count` rows, as evenly as they go over (model, level), at random within each.

    The order within a stratum is that of sha256(seed, kernel), so the choice depends on nothing but the rows and the
    seed: not on what was claimed, nor on how large a task is.

    Raises:
        UsageError: fewer rows than asked for.
        SourceError: a row lacks a field; names it.
    """
    if not 0 < count <= len(rows):
        raise UsageError(f"{count} of {len(rows)} rows cannot be chosen")
    strata: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for number, row in enumerate(rows):
        _check(row, number)
        strata.setdefault((row["model"], row["level"]), []).append(row)
    for stratum in strata.values():
        stratum.sort(key=lambda row: sha256_bytes(f"{seed}\n{row['kernel_code']}"))
    chosen: list[Mapping[str, Any]] = []
    turn = 0
    while len(chosen) < count:
        for key in sorted(strata):
            if turn < len(strata[key]) and len(chosen) < count:
                chosen.append(strata[key][turn])
        turn += 1
    return chosen


def from_claims(
    name: str, problems: Iterable[Problem], rows: Sequence[Mapping[str, Any]], *, plan: str, device: str, source: str
) -> Evaluation:
    """An evaluation of rows with claims. Several kernels for one problem become its samples, in order of the model.

    Raises:
        SourceError: a row lacks a field, or names a problem that the suite does not have.
    """
    by_key = {(one.level, one.number): one for one in problems}
    members: list[Member] = []
    taken: dict[tuple[int, int], int] = {}
    for number, row in enumerate(rows):
        _check(row, number)
    for row in sorted(rows, key=lambda one: (one["level"], one["problem_id"], one["model"], one["kernel_code"])):
        key = (row["level"], row["problem_id"])
        if key not in by_key:
            raise SourceError(f"{source}: the suite has no level {key[0]} problem {key[1]}")
        sample = taken.get(key, -1) + 1
        taken[key] = sample
        claim = {field: row.get(field) for field in ("model", "claimed_compiled", "claimed_correct",
                                                      "claimed_runtime_ms", "claimed_hardware")}
        members.append(Member(by_key[key], sample, row["kernel_code"], claim={**claim, "claim_source": source}))
    if not members:
        raise SourceError(f"{source}: no rows")
    words = f"{source} ({len(members)} kernels)"
    return Evaluation(name, members[0].problem.suite, words, tuple(members), plan, device)


def _check(row: Mapping[str, Any], number: int) -> None:
    missing = [field for field in _NEEDED if row.get(field) is None]
    if missing:
        raise SourceError(f"row {number}: field {missing[0]} is missing or null")
