"""Large values as parameters of flows."""

from __future__ import annotations

from typing import Any


class Held:
    """A value that travels to a flow without being stored by Prefect.

    Prefect sends a flow's parameters to its server and refuses more than 512 KiB; of this it stores the type's name.
    What a run worked on is in the lake, under its ids.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        """Hold `value`."""
        self.value = value
