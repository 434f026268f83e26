"""Children that are started before they are needed, while the candidate before theirs is loaded and checked.

A CUDA context takes a quarter of a second, and a candidate needs two processes. Nothing is started or left running
while a candidate is timed: `settle` comes before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dice_core.arena.children import Child, Zygote
from dice_core.arena.sandbox import Limits
from dice_core.errors import ArenaError


@dataclass
class _Spare:
    role: str
    limits: Limits
    child: Child
    settled: bool = False


class Ahead:
    """Spawns children of a zygote, ahead of time where it was told what comes next.

    Args:
        zygote: where children come from.
        device: that they bring up while they wait.
        timeout_s: for bringing it up.
    """

    def __init__(self, zygote: Zygote, device: str, timeout_s: float) -> None:
        self._zygote = zygote
        self._device = device
        self._timeout_s = timeout_s
        self._spares: list[_Spare] = []

    def expect(self, coming: Sequence[tuple[str, Limits]]) -> None:
        """Start children of these roles and limits; those of an earlier call that are not among them are ended."""
        kept: list[_Spare] = []
        missing = list(coming)
        for spare in self._spares:
            if (spare.role, spare.limits) in missing:
                missing.remove((spare.role, spare.limits))
                kept.append(spare)
            else:
                spare.child.end()
        self._spares = kept
        for role, limits in missing:
            try:
                child = self._zygote.spawn(role, limits)
            except ArenaError:
                return  # whoever needs it tries again, and says what is wrong
            self._spares.append(_Spare(role, limits, child))
            try:
                child.begin("device", {"device": self._device}, timeout_s=self._timeout_s)
            except ArenaError:
                self._spares.pop()

    def settle(self) -> None:
        """Wait until all are ready and stopped; those that failed are gone."""
        self._spares = [spare for spare in self._spares if spare.settled or self._answers(spare)]

    def spawn(self, role: str, limits: Limits) -> Child:
        """A fresh child, as `Zygote.spawn` gives it: one that waits already, or a new one.

        Raises:
            ArenaError: the zygote is gone, or the child could not confine itself.
        """
        for spare in self._spares:
            if (spare.role, spare.limits) == (role, limits):
                self._spares.remove(spare)
                if self._answers(spare):
                    return spare.child
                break
        return self._zygote.spawn(role, limits)

    def close(self) -> None:
        """End those that nobody took."""
        self.expect(())

    def _answers(self, spare: _Spare) -> bool:
        """Whether it is ready. One that waited may have been killed meanwhile, which is not held against its taker."""
        try:
            if spare.settled:
                spare.child.ask("device", {"device": self._device}, timeout_s=self._timeout_s)
            else:
                spare.child.finish()
        except ArenaError:
            spare.child.end()
            return False
        spare.settled = True
        return True
