"""Where kernels for augmentation come from: one protocol, and the offline library that ships with DICE."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dice_core.curation.structures import Structure, StructureTask
from dice_core.errors import UsageError


class KernelGenerator(Protocol):
    """Writes a kernel for a problem. What it writes is a claim until the arena has measured it."""

    @property
    def name(self) -> str:
        """Who wrote the kernel; recorded as the origin of every record made from it."""
        ...

    def generate(self, task: StructureTask) -> str | None:
        """The source of a module with `ModelNew` for the task's problem and device, or None when there is none."""
        ...


class OfflineLibrary:
    """Our own fused kernels, looked up by problem and device: no network, the same answer every time."""

    name = "offline-library"

    def __init__(self, structures: Iterable[Structure]) -> None:
        self._structures = {structure.name: structure for structure in structures}

    def tasks(self, device: str, *, sets: int = 0, drawn: int = 0, seed: int = 0) -> list[StructureTask]:
        """The library's tasks on `device`, by structure name; numbers as in `Structure.instances`."""
        return [
            task
            for name in sorted(self._structures)
            for task in self._structures[name].instances(device, sets=sets, drawn=drawn, seed=seed)
        ]

    def generate(self, task: StructureTask) -> str | None:
        """Our kernel for exactly this PyTorch module on this device; None where we have none."""
        structure = self._structures.get(task.name)
        if structure is None:
            return None
        try:
            ours = structure.task(task.device, task.dims)
        except UsageError:
            return None
        return ours.kernel_code if ours.pytorch_code == task.pytorch_code else None
