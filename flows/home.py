"""`dice init` and `dice doctor`: make a home, and see whether the machine can do the work."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dice_core.arena.sandbox import LEVELS, at_least, isolation_level
from dice_core.errors import DiceError
from dice_core.files import write_atomic
from dice_core.settings import Settings, compiler_path
from flows.console import say


@dataclass(frozen=True)
class Check:
    """One thing that `dice doctor` looked at."""

    name: str
    ok: bool
    found: str
    required: bool = True

    def as_row(self) -> dict[str, Any]:
        """Plain form."""
        status = "ok" if self.ok else ("FAILED" if self.required else "absent")
        return {"check": self.name, "status": status, "found": self.found}


def initialise(settings: Settings) -> None:
    """Create the lake and the MLflow store."""
    from dice_core.lake.catalog import Lake
    from dice_core.tracking import Tracker

    Lake.open(settings.home).close()
    Tracker(settings.home)
    say(f"home {settings.home} is ready")


def examine(settings: Settings) -> list[Check]:
    """Look at the machine."""
    from dice_core.arena.landlock import abi
    from dice_core.environment import capture, resolve_device

    checks = [Check("python", sys.version_info >= (3, 11), sys.version.split()[0])]
    checks.append(_try("device", lambda: resolve_device(settings.device)))
    device = checks[-1].found if checks[-1].ok else "cpu"
    checks.append(_try("home is writable", lambda: _write(settings)))
    free = shutil.disk_usage(settings.home).free if settings.home.exists() else 0
    checks.append(Check("disk", free > 2 << 30, f"{free / 2**30:.1f} GiB free"))
    checks.append(_try("lake extensions", _extensions))
    identity: dict[str, str] = {}
    clocks = ""
    try:
        found = capture("cuda", isolation="", cpu_threads=settings.cpu_threads)
        identity, state = found.identity, found.facts["gpu_state"]
        clocks = ", ".join(f"{name} {value}" for name, value in state.items()) if isinstance(state, dict) else ""
    except DiceError as error:
        checks.append(Check("gpu", False, str(error), required=False))
    for wanted in ("cpu", *(["cuda"] if identity.get("gpu") else [])):
        checks.append(_isolation(wanted, settings.isolation, required=wanted == device))
    for program, required in (("c++", True), ("ninja", False)):
        place = shutil.which(program, path=compiler_path())
        version = identity.get("cxx", "") if program == "c++" else ""
        checks.append(Check(program, place is not None, f"{place} ({version})" if version else place or "not on PATH",
                            required))
    checks.append(Check("compiler isolation", abi() >= 1, "landlock" if abi() >= 1 else "none", required=False))
    for name in ("gpu", "nvcc", "driver"):
        if identity:
            checks.append(Check(name, bool(identity[name]), identity[name] or "none", required=False))
    if identity.get("gpu"):
        checks.append(Check("gpu state", bool(clocks), clocks or "nvidia-smi does not tell", required=False))
    return checks


def _isolation(device: str, wanted: str, *, required: bool) -> Check:
    """Level that children on `device` really reach, tried with the device in use."""
    reached = isolation_level(device)
    found = reached if at_least(reached, wanted) else f"{reached}, but {wanted} is asked for"
    if reached != LEVELS[-1]:
        found += f" (of {', '.join(LEVELS)}; `python3 -m dice_core.arena.probe {device}` says what is missing)"
    return Check(f"isolation {device}", at_least(reached, wanted), found, required)


def _write(settings: Settings) -> str:
    write_atomic(settings.home / ".doctor", "ok").unlink()
    return str(settings.home)


def _extensions() -> str:
    from dice_core.lake.connection import extension_path

    return ", ".join(extension_path(name).name for name in ("ducklake", "sqlite_scanner"))


def _try(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except (DiceError, OSError) as error:
        return Check(name, False, str(error))
