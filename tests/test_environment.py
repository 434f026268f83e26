from __future__ import annotations

import pytest

from dice_core import environment
from dice_core.environment import capture, resolve_device
from dice_core.errors import UnfitError


def test_identity_decides_the_id_and_facts_do_not() -> None:
    first = capture("cpu", isolation="rlimits", cpu_threads=1)
    again = capture("cpu", isolation="rlimits", cpu_threads=1)
    assert first.environment_id == again.environment_id
    assert first.facts["captured_at"] <= again.facts["captured_at"]
    assert first.environment_id != capture("cpu", isolation="netns", cpu_threads=1).environment_id
    assert first.environment_id != capture("cpu", isolation="rlimits", cpu_threads=2).environment_id
    assert first.identity["torch"][0].isdigit()
    assert "c++" in first.identity["cxx"] or "clang" in first.identity["cxx"]


def test_a_machine_without_what_is_asked_is_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_run", lambda *argv: "")
    with pytest.raises(UnfitError, match="nvidia-smi finds no GPU"):
        resolve_device("cuda")
    with pytest.raises(UnfitError, match="no C\\+\\+ compiler"):
        resolve_device("auto")


def test_the_first_gpu_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = {"name": "NVIDIA H200", "uuid": "GPU-123", "driver_version": "580.1", "memory.total": "143771 MiB"}

    def run(*argv: str) -> str:
        if argv[0] == "nvidia-smi":
            return ", ".join(gpu.get(name, "[N/A]") for name in argv[1].partition("=")[2].split(",")) + "\n"
        return {"nvcc": "nvcc: NVIDIA\nBuild cuda_13.0.r13.0/x\n", "c++": "c++ 12\n"}.get(argv[0], "")

    monkeypatch.setattr(environment, "_run", run)
    found = capture("cuda", isolation="rlimits", cpu_threads=1).identity
    assert (found["gpu"], found["driver"], found["nvcc"]) == ("NVIDIA H200", "580.1", "Build cuda_13.0.r13.0/x")
    assert "GPU-123" not in found.values()
    assert resolve_device("auto") == "cuda"
