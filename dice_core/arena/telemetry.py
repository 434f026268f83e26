"""What the machine did while a block was measured: clocks, power, temperature, reasons for low clocks, other work.

Read by the judge between the turns of the two sides, through the driver's management library (NVML), which touches no
CUDA context. Nothing is excluded for it: it is there for whoever wonders about a wide interval.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _MEMORY_CLOCK, _TEMPERATURE_OF_GPU = 1, 2, 0
#: Bits of nvmlDeviceGetCurrentClocksEventReasons, as nvml.h names them.
_REASONS = {
    0x1: "idle", 0x2: "application_clocks", 0x4: "power_cap", 0x8: "hardware_slowdown", 0x10: "sync_boost",
    0x20: "software_thermal", 0x40: "hardware_thermal", 0x80: "power_brake", 0x100: "display_clocks",
}
SLOWDOWNS = frozenset({"hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake"})
#: Clocks of the two halves of a block that differ by more than this share are worth a note.
_CLOCK_DRIFT = 0.03


class Telemetry:
    """Readings of one device. Where there is no NVML, or none of a value, these are simply absent.

    Args:
        uuid: of the GPU, as torch gives it (without `GPU-`); empty for the CPU.
        library: of NVML.
    """

    def __init__(self, uuid: str, library: str = _LIBRARY) -> None:
        self._nvml: Any = None
        self._device = ctypes.c_void_p()
        self._blocks: list[list[dict[str, Any]]] = []
        if not uuid:
            return
        try:
            nvml = ctypes.CDLL(library)
            name = f"GPU-{uuid.removeprefix('GPU-')}".encode()
            if nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(self._device)) == 0:
                self._nvml = nvml
        except (OSError, AttributeError):
            pass

    def read(self) -> dict[str, Any]:
        """One reading.

        Returns:
            `runnable` (processes and threads that want a processor), and on a GPU `sm_mhz`, `memory_mhz`, `power_w`,
            `celsius` and `reasons` (why clocks are not at their highest).
        """
        found: dict[str, Any] = {"runnable": _runnable()}
        if self._nvml is not None:
            found |= {
                "sm_mhz": self._number("nvmlDeviceGetClockInfo", _SM_CLOCK),
                "memory_mhz": self._number("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
                "power_w": self._number("nvmlDeviceGetPowerUsage"),
                "celsius": self._number("nvmlDeviceGetTemperature", _TEMPERATURE_OF_GPU),
                "reasons": self._reasons(),
            }
            if found["power_w"] is not None:
                found["power_w"] = round(found["power_w"] / 1000)
        return {name: value for name, value in found.items() if value is not None}

    def note(self, readings: list[dict[str, Any]]) -> None:
        """Keep the readings of one block: before it, between the sides, after it."""
        self._blocks.append(readings)

    def summary(self) -> Mapping[str, Any]:
        """All blocks' readings as columns of rows, the reasons seen, and the blocks in which something was odd."""
        names = sorted({name for block in self._blocks for one in block for name in one if name != "reasons"})
        reasons = sorted({reason for block in self._blocks for one in block for reason in one.get("reasons", ())})
        odd = {str(number): said for number, block in enumerate(self._blocks) if (said := oddities(block))}
        rows = [[[one.get(name) for name in names] for one in block] for block in self._blocks]
        return {"columns": names, "blocks": rows, "reasons": reasons, "odd_blocks": odd}

    def _number(self, function: str, *arguments: int) -> int | None:
        value = ctypes.c_uint()
        return value.value if self._call(function, *arguments, ctypes.byref(value)) else None

    def _reasons(self) -> list[str] | None:
        bits = ctypes.c_ulonglong()
        for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if self._call(function, ctypes.byref(bits)):
                return [name for bit, name in _REASONS.items() if bits.value & bit]
        return None

    def _call(self, function: str, *arguments: Any) -> bool:
        try:
            return int(getattr(self._nvml, function)(self._device, *arguments)) == 0
        except AttributeError:  # an older driver
            return False


def oddities(block: list[dict[str, Any]]) -> list[str]:
    """What was odd in the readings of one block: clocks held down by the hardware, clocks that moved."""
    found = sorted({reason for one in block for reason in one.get("reasons", ())} & SLOWDOWNS)
    clocks = [one["sm_mhz"] for one in block if one.get("sm_mhz")]
    if clocks and max(clocks) - min(clocks) > _CLOCK_DRIFT * max(clocks):
        found.append(f"clock {min(clocks)}..{max(clocks)} MHz")
    return found


def _runnable() -> int | None:
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return None
