"""The counters of a step, and the law that they balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dice_core.errors import DiceError


def balance(step: str, entered: int, kept: int, reasons: Iterable[str]) -> dict[str, int]:
    """Counters `in`, `kept` and `out:<reason>` of one step.

    Raises:
        DiceError: they do not add up: a row was lost or doubled, which is a fault of ours.
    """
    out = Counter(reasons)
    if entered != kept + out.total():
        raise DiceError(f"step {step}: {entered} in, but {kept} kept and {dict(out)} out: rows were lost or doubled")
    return {"in": entered, "kept": kept} | {f"out:{reason}": count for reason, count in sorted(out.items())}
