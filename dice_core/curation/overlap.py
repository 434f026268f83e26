"""Overlap of training modules with the benchmark's problems: a trained-on problem proves nothing in an evaluation.

Three degrees are told apart: the same text, the same program spelt differently, and the same module at other sizes
(every number blanked). The last is how KernelBench's own revisions differ from each other, so it counts as overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dice_core.curation.normalise import fingerprint, structure_fingerprint, tidy
from dice_core.errors import UsageError
from dice_core.files import sha256_bytes
from dice_core.records import Decision, TrainingRecord

OverlapPolicy = Literal["exclude", "flag"]


@dataclass(frozen=True)
class OverlapIndex:
    """Fingerprints of a suite's problems, each with the name of the first problem that has it."""

    exact: dict[str, str]
    normalised: dict[str, str]
    structure: dict[str, str]

    @classmethod
    def build(cls, problems: Iterable[tuple[str, str]]) -> OverlapIndex:
        """Index problems given as (name, source).

        Raises:
            UsageError: there are no problems.
        """
        index = cls({}, {}, {})
        for name, source in problems:
            index.exact.setdefault(sha256_bytes(tidy(source)), name)
            index.normalised.setdefault(fingerprint(source), name)
            index.structure.setdefault(structure_fingerprint(source), name)
        if not index.exact:
            raise UsageError("overlap check: the suite has no problems")
        return index

    def find(self, source: str) -> tuple[str, str, str] | None:
        """The closest degree of overlap as (rule, relation in words, problem's name), or None."""
        if name := self.exact.get(sha256_bytes(tidy(source))):
            return "benchmark_exact", "the same text as", name
        if name := self.normalised.get(fingerprint(source)):
            return "benchmark_ast", "the same program, spelt differently, as", name
        if name := self.structure.get(structure_fingerprint(source)):
            return "benchmark_structure", "the same module at other sizes as", name
        return None


def check_overlap(
    records: Sequence[TrainingRecord], index: OverlapIndex | None, policy: OverlapPolicy = "exclude"
) -> tuple[list[TrainingRecord], list[Decision]]:
    """Decide for each record whether its module is a benchmark problem.

    Args:
        records: records in order.
        index: the benchmark; None keeps every record and says `not_checked`.
        policy: `exclude` drops what overlaps, `flag` keeps it and says so.

    Returns:
        The kept records in order, and one decision for each record in order.

    Raises:
        UsageError: unknown policy.
    """
    if policy not in ("exclude", "flag"):
        raise UsageError(f"overlap policy {policy!r}: known are exclude and flag")
    kept: list[TrainingRecord] = []
    decisions: list[Decision] = []
    for record in records:
        identity = record.record_id
        if index is None:
            decision = Decision(identity, "overlap", "not_checked", "flag", "no benchmark suite was given")
        elif found := index.find(record.pytorch_code):
            rule, relation, name = found
            verdict = "drop" if policy == "exclude" else "flag"
            decision = Decision(identity, "overlap", rule, verdict, f"{relation} benchmark problem {name}")
        else:
            decision = Decision(identity, "overlap", "no_overlap", "keep", "not among the benchmark's problems")
        decisions.append(decision)
        if decision.verdict != "drop":
            kept.append(record)
    return kept, decisions
