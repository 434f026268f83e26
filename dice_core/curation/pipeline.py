"""The funnel, step by step: ingest, contract, dedup, overlap, honesty, speedup, augment, cuke.

Each step is a pure function from the result of the one before to an immutable result with its decisions and its
counters. Counters are named `in`, `kept` and `out:<reason>`, and `in = kept + sum of out` holds at every step, or the
step raises: a row that is lost without a reason is a fault of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dice_core.curation.balance import balance
from dice_core.curation.concur import SPEEDUP_COLUMN, RawRow
from dice_core.curation.contracts import check_rows, unfence
from dice_core.curation.cuke import CukeVersion, Funnel, Kept, Recipe, assemble
from dice_core.curation.dedup import deduplicate as drop_duplicates
from dice_core.curation.honesty import check_honesty as drop_deceptive
from dice_core.curation.ingest import Ingested as Ingested
from dice_core.curation.ingest import ingest as ingest
from dice_core.curation.mixture import STEP as CLOSING
from dice_core.curation.mixture import Mixture, mix
from dice_core.curation.overlap import OverlapIndex, OverlapPolicy
from dice_core.curation.overlap import check_overlap as drop_overlap
from dice_core.curation.sources import SourceSpec as SourceSpec
from dice_core.curation.speedup_filter import (
    CLAIMED_RULE,
    DEFAULT_THRESHOLD,
    MEASURED_RULE,
    Evidence,
    Measurement,
    decide,
)
from dice_core.curation.versions import RULES_VERSION
from dice_core.errors import DiceError
from dice_core.records import Decision, QuarantineRow, SourceFile, TrainingRecord, make_id

Measurements = Mapping[tuple[str, str], Measurement]  #: by (problem id, kernel id)


@dataclass(frozen=True)
class CurationConfig:
    """The options of one curation. Numbers that ids depend on are written as text."""

    evidence: Evidence = "auto"
    threshold: float = DEFAULT_THRESHOLD
    augment_threshold: float = DEFAULT_THRESHOLD
    overlap: OverlapPolicy = "exclude"
    contract_sha256: str = ""
    suite_sha256: str = ""  #: of the benchmark suite's file; empty when none is given
    mixture: Mixture = field(default_factory=Mixture)

    def as_text(self) -> dict[str, str]:
        """All options as text, as they enter ids, manifests and cards."""
        return {
            "evidence": self.evidence,
            "threshold": f"{self.threshold:g}",
            "augment_threshold": f"{self.augment_threshold:g}",
            "overlap": self.overlap,
            "contract_sha256": self.contract_sha256,
            "suite_sha256": self.suite_sha256,
            "rules_version": str(RULES_VERSION),
            **self.mixture.as_text(),
        }


@dataclass(frozen=True)
class Step:
    """Result of one step on records: what stays, why, and the balance."""

    step: str
    records: tuple[TrainingRecord, ...]
    counters: Mapping[str, int]
    decisions: tuple[Decision, ...] = ()
    quarantine: tuple[QuarantineRow, ...] = ()
    entered: tuple[TrainingRecord, ...] = ()  #: the records that the decisions are about
    kept: tuple[Kept, ...] = ()  #: the records with their evidence, after `speedup` and `augment`


def curation_id(source_files: Iterable[SourceFile], config: CurationConfig, *, evidence_digest: str = "") -> str:
    """Id of a curation: the sources' content, the options, the version of the rules.

    Args:
        source_files: the sources; their order does not matter.
        config: the options.
        evidence_digest: hash of the measurements used, so that new measurements are a new curation; empty when the
            evidence is the claims alone.
    """
    hashes = sorted({file.sha256 for file in source_files})
    return make_id("cur", {"sources": hashes, "config": config.as_text(), "evidence": evidence_digest})


def evidence_digest(measurements: Measurements) -> str:
    """Hash of the attempts that measurements rest on; empty when there are none."""
    ids = sorted(measurement.attempt_id for measurement in measurements.values())
    return make_id("evd", ids) if ids else ""


def contract(ingested: Ingested, suite_path: Path) -> Step:
    """Turn rows that keep the contract into records; the others go to quarantine.

    A row that breaks several rules has a quarantine row for each and is counted under the first.

    Raises:
        ContractError: the suite cannot be used.
    """
    good, broken = check_rows(ingested.rows, suite_path)
    first_rule: dict[tuple[str, str], str] = {}
    for row in broken:
        first_rule.setdefault((row.source_file_id, row.row_locator), row.rule)
    records = tuple(_record(row) for row in good)
    counters = balance("contract", len(ingested.rows), len(records), first_rule.values())
    return Step("contract", records, counters, quarantine=tuple(broken))


def deduplicate(before: Step) -> Step:
    """Keep the first of each group of equal records."""
    return _decided("dedup", before, *drop_duplicates(before.records))


def check_overlap(before: Step, index: OverlapIndex | None, policy: OverlapPolicy = "exclude") -> Step:
    """Set aside records whose module is a benchmark problem; without an index, note that nothing was checked."""
    return _decided("overlap", before, *drop_overlap(before.records, index, policy))


def check_honesty(before: Step) -> Step:
    """Set aside kernels that are deceptive by their text; fill in the language of the others."""
    return _decided("honesty", before, *drop_deceptive(before.records))


def filter_speedup(before: Step, config: CurationConfig, measurements: Measurements | None = None) -> Step:
    """Keep what is fast enough on the configured evidence."""
    return _by_speedup("speedup", before.records, config.evidence, config.threshold, measurements or {})


def augment(records: Sequence[TrainingRecord], config: CurationConfig, measurements: Measurements) -> Step:
    """Keep augmented records that are not deceptive and that the arena measured as correct and fast enough.

    Claims do not count here: an augmented record has no other evidence than the arena's.
    """
    honest, decisions = drop_deceptive(records)
    step = _by_speedup("augment", honest, "measured", config.augment_threshold, measurements)
    marked = [Decision(d.record_id, "augment", d.rule, d.verdict, d.reason) for d in decisions if d.verdict != "keep"]
    dropped = _first_drops(marked)
    counters = balance(
        "augment", len(records), len(step.records), [*dropped.values(), *_first_drops(step.decisions).values()]
    )
    return Step("augment", step.records, counters, (*marked, *step.decisions), entered=tuple(records), kept=step.kept)


def choose_members(
    config: CurationConfig, ingested: Ingested, steps: Sequence[Step], *, more_sources: Sequence[SourceFile] = ()
) -> Step:
    """The closing step `cuke`: what the mixture takes of what the `speedup` and `augment` steps kept.

    Raises:
        DiceError: two steps kept the same record.
    """
    kept = [member for step in steps for member in step.kept]
    if len({member.record.record_id for member in kept}) != len(kept):
        raise DiceError(f"step {CLOSING}: two steps kept the same record")
    uris = {file.source_file_id: file.uri for file in (*ingested.source_files, *more_sources)}
    members, decisions = mix(kept, config.mixture, uris)
    counters = balance(CLOSING, len(kept), len(members), (one.rule for one in decisions))
    records = tuple(member.record for member in members)
    entered = tuple(member.record for member in kept)
    return Step(CLOSING, records, counters, tuple(decisions), entered=entered, kept=tuple(members))


def make_version(
    curation: str,
    config: CurationConfig,
    ingested: Ingested,
    steps: Sequence[Step],
    *,
    environment: Mapping[str, str] | None = None,
    more_sources: Sequence[SourceFile] = (),
) -> CukeVersion:
    """Assemble a CuKe version.

    Args:
        curation: the curation's id.
        config: its options.
        ingested: the first step.
        steps: all later steps, in order; the closing one (`choose_members`) is added where it is missing.
        environment: what measured, for the card.
        more_sources: sources of records that did not come through `ingest` (augmentation).

    Raises:
        UsageError: nothing was kept.
        DiceError: two steps kept the same record.
    """
    if not any(step.step == CLOSING for step in steps):
        steps = [*steps, choose_members(config, ingested, steps, more_sources=more_sources)]
    sources = [
        {
            "uri": file.uri,
            "revision": file.revision,
            "sha256": file.sha256,
            "size_bytes": file.size_bytes,
            "licence": file.licence,
        }
        for file in sorted((*ingested.source_files, *more_sources), key=lambda file: file.sha256)
    ]
    recipe = Recipe(curation, config.as_text(), sources, dict(environment or {}))
    decisions = [decision for step in steps for decision in step.decisions]
    members = next(step for step in steps if step.step == CLOSING).kept
    return assemble(members, recipe, funnel=funnel(ingested, steps), decisions=decisions,
                    validation_share=config.mixture.validation_share)


def funnel(ingested: Ingested, steps: Sequence[Step]) -> Funnel:
    """Counters of all steps in order."""
    return {ingested.step: ingested.counters} | {step.step: step.counters for step in steps}


def _record(row: RawRow) -> TrainingRecord:
    values = row.values
    return TrainingRecord(
        source_file_id=row.source_file_id,
        row_locator=row.locator,
        uuid=str(values["uuid"]),
        problem_name=str(values["problem_name"]),
        pytorch_code=unfence(values["pytorch_code"]),
        kernel_code=unfence(values["generated_code"]),
        reasoning=values.get("generated_think") or "",
        claimed_speedup=None if values[SPEEDUP_COLUMN] is None else float(values[SPEEDUP_COLUMN]),
    )


def _by_speedup(
    step: str,
    records: Sequence[TrainingRecord],
    evidence: Evidence,
    threshold: float,
    measurements: Measurements,
) -> Step:
    decisions: list[Decision] = []
    kept: list[Kept] = []
    for record in records:
        measured = measurements.get((record.problem_id, record.kernel_id))
        decision = decide(record, measured, evidence, threshold, step=step)
        decisions.append(decision)
        if decision.rule == MEASURED_RULE:
            kept.append(Kept(record, "measured", measured))
        elif decision.rule == CLAIMED_RULE:
            kept.append(Kept(record, "claimed"))
    out = [decision.rule for decision in decisions if decision.verdict == "drop"]
    counters = balance(step, len(records), len(kept), out)
    passed = tuple(member.record for member in kept)
    return Step(step, passed, counters, tuple(decisions), entered=tuple(records), kept=tuple(kept))


def _decided(step: str, before: Step, kept: Sequence[TrainingRecord], decisions: Sequence[Decision]) -> Step:
    counters = balance(step, len(before.records), len(kept), _first_drops(decisions).values())
    return Step(step, tuple(kept), counters, tuple(decisions), entered=before.records)


def _first_drops(decisions: Iterable[Decision]) -> dict[str, str]:
    """The first rule that dropped each record, by record id."""
    dropped: dict[str, str] = {}
    for decision in decisions:
        if decision.verdict == "drop":
            dropped.setdefault(decision.record_id, decision.rule)
    return dropped
