"""Duplicates among records: the same pair of sources, letter by letter or up to spelling.

Both codes must agree. The first record in source order is kept, so the outcome does not depend on what the rows
claim, and each dropped record names the one that it repeats.
"""

from __future__ import annotations

from collections.abc import Sequence

from dice_core.curation.normalise import fingerprint, tidy
from dice_core.files import sha256_bytes
from dice_core.records import Decision, TrainingRecord


def deduplicate(records: Sequence[TrainingRecord]) -> tuple[list[TrainingRecord], list[Decision]]:
    """Keep the first of each group of equal records.

    Rules: `exact` (equal but for line ends and white space at line ends), `normalised_ast` (equal after
    `normalise.fingerprint`), `unique` (kept).

    Returns:
        The kept records in order, and one decision for each record in order.
    """
    exact: dict[str, TrainingRecord] = {}
    normalised: dict[str, TrainingRecord] = {}
    kept: list[TrainingRecord] = []
    decisions: list[Decision] = []
    for record in records:
        text = sha256_bytes(f"{tidy(record.pytorch_code)}\0{tidy(record.kernel_code)}")
        tree = fingerprint(record.pytorch_code) + fingerprint(record.kernel_code)
        if (first := exact.get(text)) is not None:
            decisions.append(_repeats(record, first, "exact", "the same text as"))
        elif (first := normalised.get(tree)) is not None:
            decisions.append(_repeats(record, first, "normalised_ast", "the same program, spelt differently, as"))
        else:
            kept.append(record)
            decisions.append(
                Decision(record.record_id, "dedup", "unique", "keep", "no earlier record has these sources")
            )
        exact.setdefault(text, record)
        normalised.setdefault(tree, record)
    return kept, decisions


def _repeats(record: TrainingRecord, first: TrainingRecord, rule: str, relation: str) -> Decision:
    # `first` may itself have been dropped; its own decision then names the kept one.
    reason = f"{relation} {first.record_id} ({first.row_locator} of {first.source_file_id})"
    return Decision(record.record_id, "dedup", rule, "drop", reason)
