"""What a flow hands back to the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """Result of one flow run."""

    flow: str
    worked: bool  #: false: everything was done before, nothing was changed
    facts: Mapping[str, Any] = field(default_factory=dict)
    imperfect: int = 0  #: rows quarantined or items failed in this run; they make the exit code 5

    @property
    def exit_code(self) -> int:
        """0, or 5 when this run quarantined or failed something."""
        return 5 if self.imperfect else 0

    def as_dict(self) -> dict[str, Any]:
        """Plain form for `--json`."""
        return {"flow": self.flow, "worked": self.worked, **self.facts}

    def lines(self) -> list[str]:
        """Plain text for people."""
        head = f"{self.flow}: " + ("done" if self.worked else "nothing to do, everything is up to date")
        return [head, *(f"  {name.replace('_', ' ')}: {_words(value)}" for name, value in self.facts.items())]


def _words(value: object) -> str:
    return ", ".join(str(one) for one in value) or "none" if isinstance(value, list | tuple) else str(value)
