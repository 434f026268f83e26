"""How long work tells that it is getting on. The library calls a `Progress`; who watches decides what to show."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


# Checkable, since Prefect builds a schema of every flow's parameters.
@runtime_checkable
class Progress(Protocol):
    """Called with the step's name, what is done of how much, and a short note on the latest item."""

    def __call__(self, step: str, done: int, total: int, note: str = "") -> None:
        """Report. `done == total` ends the step."""
        ...


def silent(step: str, done: int, total: int, note: str = "") -> None:
    """A `Progress` that shows nothing."""
