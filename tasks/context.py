"""What every step of a run shares: settings, the run's id, the machine, and who watches."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dice_core.environment import capture, resolve_device
from dice_core.files import file_lock
from dice_core.lake.catalog import Lake
from dice_core.progress import Progress
from dice_core.records import Environment, utc_now
from dice_core.settings import Settings

#: Contracts, structures and samples that ship with DICE.
DATASETS = Path(__file__).resolve().parent.parent / "datasets"


@dataclass(frozen=True)
class Run:
    """One invocation of a flow."""

    settings: Settings
    run_id: str
    device: str
    environment: Environment
    progress: Progress

    @property
    def environment_id(self) -> str:
        """Id of the machine as results see it."""
        return self.environment.environment_id

    def lake(self, *, read_only: bool = False) -> Lake:
        """Open the lake; use as a context manager and keep it short."""
        return Lake.open(self.settings.home, read_only=read_only)


@contextlib.contextmanager
def open_run(settings: Settings, progress: Progress) -> Iterator[Run]:
    """Take the home's run lock, look at the machine and give the run.

    Raises:
        BusyError: another run holds this home.
        UnfitError: the machine lacks the device or the compiler that the settings ask for.
    """
    from dice_core.arena.sandbox import isolation_level

    with file_lock(settings.home / "run.lock", wait=False, what=f"a run in {settings.home}"):
        device = resolve_device(settings.device)
        environment = capture(device, isolation=isolation_level(device), cpu_threads=settings.cpu_threads)
        run_id = f"run_{utc_now().replace('-', '').replace(':', '').split('.')[0]}Z_{secrets.token_hex(4)}"
        yield Run(settings, run_id, device, environment, progress)
