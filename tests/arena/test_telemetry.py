"""Telemetry against a management library of our own, since most test machines have no GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dice_core.arena import timing
from dice_core.arena.telemetry import Telemetry, oddities

NVML = r"""
#include <string.h>
static int handle;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
    *device = &handle;
    return strcmp(uuid, "GPU-0f3a") == 0 ? 0 : 6;
}
int nvmlDeviceGetClockInfo(void* device, int kind, unsigned* mhz) {
    if (device != &handle) return 2;
    *mhz = kind == 1 ? 1980 : 3201;
    return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) { *milliwatts = 412600; return 0; }
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) { return 3; /* not supported */ }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* bits) { *bits = 0x44; return 0; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "libnvml.so", "nvml.c"], cwd=folder, check=True)
    return str(folder / "libnvml.so")


def test_values_come_from_the_library_and_missing_ones_are_left_out(library: str) -> None:
    reading = Telemetry("0f3a", library).read()
    assert reading.pop("runnable") >= 1
    assert reading == {"sm_mhz": 1980, "memory_mhz": 3201, "power_w": 413, "reasons": ["power_cap", "hardware_thermal"]}


@pytest.mark.parametrize("uuid", ["", "another"])
def test_without_the_device_only_the_host_is_read(uuid: str, library: str) -> None:
    assert list(Telemetry(uuid, library).read()) == ["runnable"]
    assert list(Telemetry("0f3a", "libno-such-nvml.so").read()) == ["runnable"]


def test_a_summary_holds_every_reading_and_names_odd_blocks(library: str) -> None:
    telemetry = Telemetry("0f3a", library)
    calm = {"sm_mhz": 1980, "power_w": 300, "reasons": []}
    telemetry.note([calm, calm, calm])
    telemetry.note([calm, {**calm, "sm_mhz": 1500, "reasons": ["hardware_thermal"]}, calm])
    told = telemetry.summary()
    assert told["columns"] == ["power_w", "sm_mhz"]
    assert told["blocks"][1] == [[300, 1980], [300, 1500], [300, 1980]]
    assert told["reasons"] == ["hardware_thermal"]
    assert told["odd_blocks"] == {"1": ["hardware_thermal", "clock 1500..1980 MHz"]}


def test_small_moves_of_the_clock_are_not_odd() -> None:
    assert oddities([{"sm_mhz": 1980}, {"sm_mhz": 1935}, {}]) == []
    assert oddities([{"runnable": 3}]) == []


def test_the_floor_counts_inputs_once_and_outputs_beyond_the_cache() -> None:
    h200 = {"peak_bytes_per_us": 4.8e6, "l2_bytes": 50 << 20}
    assert timing.floor_us(48_000_000, 1 << 20, h200) == pytest.approx(10.0)
    assert timing.floor_us(0, (50 << 20) + 4_800_000, h200) == pytest.approx(1.0)
    assert timing.floor_us(48_000_000, 0, {"l2_bytes": 1}) == 0.0
