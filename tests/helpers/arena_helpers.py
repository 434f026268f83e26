"""Small problems and a way to evaluate candidates against them."""

from __future__ import annotations

from pathlib import Path

from dice_core.arena.evaluate import ArenaConfig, evaluate
from dice_core.arena.run import BuildProgress
from dice_core.lake.attempts import AttemptFile, read_attempt
from dice_core.records import Environment, WorkItem

ENVIRONMENT = Environment({"machine": "test"}, {})

TANH = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)

def get_inputs():
    return [torch.randn(512, 1024)]

def get_init_inputs():
    return []
"""

LINEAR = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, size, bias=True):
        super().__init__()
        self.linear = nn.Linear(size, size, bias=bias)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.rand(16, 64)]

def get_init_inputs():
    return [64]
"""


def candidate(forward: str, init: str = "", arguments: str = "x", top: str = "") -> str:
    """Source of a ModelNew with this body of `forward` (and of `__init__`, whose arguments are `*a, **k`)."""
    lines = ["import torch", "import torch.nn as nn", top, "class ModelNew(nn.Module):"]
    if init:
        lines += ["    def __init__(self, *a, **k):", "        super().__init__()",
                  *(f"        {line}" for line in init.splitlines())]
    lines += [f"    def forward(self, {arguments}):", *(f"        {line}" for line in forward.splitlines())]
    return "\n".join(lines) + "\n"


def config(folder: Path, **changes: object) -> ArenaConfig:
    """A configuration for quick tests with everything under `folder`."""
    settings: dict[str, object] = {
        "device": "cpu", "cache_dir": folder / "cache", "plan": "quick", "load_timeout_s": 20.0, "call_timeout_s": 10.0,
        "memory_bytes": 4 << 30, "scratch_dir": folder / "scratch", "build_jobs": 1,
    }
    return ArenaConfig(**(settings | changes))  # type: ignore[arg-type]


def run(
    folder: Path, *pairs: tuple[str, str], on_build: BuildProgress | None = None, **changes: object
) -> list[AttemptFile]:
    """Evaluate (problem, candidate) pairs; returns their attempt files in the same order."""
    device = str(changes.get("device", "cpu"))
    items = [WorkItem(problem, kernel, device, plan="quick") for problem, kernel in pairs]
    evaluate(items, folder / "attempts", config(folder, **changes), ENVIRONMENT, on_build=on_build)
    found = {path.name.split(".")[0]: path for path in (folder / "attempts").glob("att_*.parquet")}
    return [read_attempt(found[item.attempt_id(ENVIRONMENT.environment_id)]) for item in items]
