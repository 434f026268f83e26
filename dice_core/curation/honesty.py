"""The static honesty pass: what a kernel's own text gives away before anything runs.

A "kernel" that has no code of its own, never calls it, or leaves the work to the library is *deceptive* (DICE,
arXiv:2602.11715). Selecting for speed selects for these, so this step stands before the filter. What only a run can
show (which kernels were launched) comes later, as the honesty class of a measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dice_core.arena.static_flags import Flag, static_flags
from dice_core.records import Decision, TrainingRecord

#: Places named in a decision's reason; the static pass itself can be run again for the rest.
_PLACES = 3


def check_honesty(records: Sequence[TrainingRecord]) -> tuple[list[TrainingRecord], list[Decision]]:
    """Drop records whose kernel is deceptive by its text; note every other flag.

    Returns:
        The kept records in order, with their language filled in (it is not part of a record's id), and one decision
        for each record and flagged rule: `drop` where the rule alone makes the kernel deceptive, `flag` otherwise. A
        record without flags has the rule `no_flags`.
    """
    kept: list[TrainingRecord] = []
    decisions: list[Decision] = []
    for record in records:
        report = static_flags(record.kernel_code)
        if not report.deceptive:
            kept.append(replace(record, language=report.language))
        for rule in report.rules:
            flags = tuple(flag for flag in report.flags if flag.rule == rule)
            verdict = "drop" if replace(report, flags=flags).deceptive else "flag"
            decisions.append(Decision(record.record_id, "honesty", rule, verdict, _reason(flags)))
        if not report.flags:
            reason = f"nothing found in the text; language {report.language}, suggests class {report.suggests}"
            decisions.append(Decision(record.record_id, "honesty", "no_flags", "keep", reason))
    return kept, decisions


def _reason(flags: Sequence[Flag]) -> str:
    places = "; ".join(f"line {flag.line}: {flag.detail}" for flag in flags[:_PLACES])
    more = len(flags) - _PLACES
    return f"{places}; and {more} more" if more > 0 else places
