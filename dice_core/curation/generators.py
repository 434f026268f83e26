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

    def tasks(self, device: str) -> list[StructureTask]:
        """Every task of the library on `device`, by structure name, then in the file's order of dimensions."""
        return [task for name in sorted(self._structures) for task in self._structures[name].instances(device)]

    def generate(self, task: StructureTask) -> str | None:
        """Our kernel for exactly this PyTorch module on this device; None for a structure or size we have none for."""
        structure = self._structures.get(task.name)
        if structure is None:
            return None
        try:
            known = structure.instances(task.device)
        except UsageError:
            return None
        return next((one.kernel_code for one in known if one.pytorch_code == task.pytorch_code), None)
