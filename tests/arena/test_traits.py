"""What a problem lets pass: one small task of ours for each trait, and KernelBench's own tasks at reduced sizes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from arena_helpers import LINEAR, TANH, candidate, run

from dice_core.arena import traits
from dice_core.arena.drawing import draw
from dice_core.arena.trials import Trial, TrialMaker
from dice_core.arena.weights import randomised
from dice_core.bench.problems import load_suite, select, with_sizes
from dice_core.records import PROTOCOL_VERSION

HEAD = "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n"
TAIL = "\n\ndef get_inputs():\n    return [torch.rand(32, 64)]\n\ndef get_init_inputs():\n    return []\n"
INIT = "    def __init__(self):\n        super().__init__()\n"


def task(forward: str, init: str = "") -> str:
    head = f"{INIT}        {init}\n" if init else ""
    return f"{HEAD}{head}    def forward(self, x):\n        return {forward}{TAIL}"


#: name -> (task, the traits that it has)
TASKS = {
    "sound": (task("torch.tanh(self.linear(x)) + x", "self.linear = nn.Linear(64, 64)"), set()),
    "vanishing": (task("x * 1e-5"),
                  {"zero_passable", "constant_passable", "replay_passable", "tf32_indistinguishable"}),
    "always one": (task("torch.softmax(x, dim=1).sum(dim=1)"),
                   {"constant_passable", "replay_passable", "tf32_indistinguishable"}),
    "one random bias": (task("torch.relu(x - 2) + self.bias", "self.bias = nn.Parameter(torch.randn(1))"),
                        {"constant_passable", "replay_passable"}),
    "bias only": (task("torch.relu(x - 2) + self.bias", "self.bias = nn.Parameter(torch.randn(64))"),
                  {"replay_passable"}),
    "skippable norm": (task("self.norm(x)", "self.norm = nn.LayerNorm(64)"), {"weight_independent"}),
    "dropout": (task("torch.nn.functional.dropout(x, 0.5)"), {"stochastic"}),
    "in place": (task("x.mul_(2)"), {"mutates_inputs"}),
    "tuple": (task("(x * 2, x + 1)"), {"tuple_output"}),
}


def traits_of(source: str) -> dict[str, dict[str, Any]]:
    module: dict[str, Any] = {}
    exec(compile(source, "problem", "exec"), module)  # noqa: S102 - our own tasks
    torch.manual_seed(1)
    with torch.no_grad():
        model = module["Model"](*module["get_init_inputs"]())
    cpu = torch.device("cpu")
    maker = TrialMaker(model, partial(draw, module["get_inputs"], device=cpu), cpu, randomised(model, 5))
    first, second = maker.make("kernelbench", 11, 0, 3, 0), maker.make("fresh", 12, 0, 4, 1)
    assert isinstance(first, Trial) and isinstance(second, Trial)
    return {one["trait"]: one for one in traits.problem_traits(maker, first, second, 3, 77)}


@pytest.mark.parametrize("name", TASKS)
def test_each_trait_has_a_task(name: str) -> None:
    source, expected = TASKS[name]
    found = traits_of(source)
    holding = {trait for trait, one in found.items() if one["holds"]}
    ignored = {"tf32_indistinguishable"} - expected  # of simple tasks it depends on little
    assert holding - ignored == expected
    for trait in ("zero_passable", "constant_passable", "replay_passable"):
        assert (found[trait]["evidence"] <= 1) == found[trait]["holds"]
        assert found[trait]["tolerance"] == 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "sizes", "expected"),
    [
        ("1/23", {"batch_size": 16, "dim": 65536}, {"zero_passable", "constant_passable", "replay_passable"}),
        ("1/40", {"batch_size": 2, "dim1": 16, "dim2": 16}, {"weight_independent"}),
        ("2/9", {"batch_size": 64, "in_features": 1024, "out_features": 1024},
         {"zero_passable", "constant_passable", "replay_passable", "weight_independent"}),
        ("2/80", {"batch_size": 64, "in_features": 1024, "out_features": 1024},
         {"zero_passable", "constant_passable", "replay_passable", "weight_independent"}),
        ("1/19", {"batch_size": 16, "dim": 4096}, set()),
        ("2/12", {"batch_size": 64, "in_features": 512, "out_features": 512}, set()),
    ],
)
def test_kernelbench_tasks(number: str, sizes: dict[str, int], expected: set[str], real_data: Path) -> None:
    [problem] = select(load_suite(real_data / "kernelbench" / "kernelbench_v0_2.parquet", "kernelbench"), number)
    found = traits_of(with_sizes(problem, sizes).source)
    four = ("zero_passable", "constant_passable", "replay_passable", "weight_independent")
    assert {trait for trait in four if found[trait]["holds"]} == expected


NORM = LINEAR.replace("self.linear = nn.Linear(size, size, bias=bias)", "self.norm = nn.LayerNorm(size)").replace(
    "torch.relu(self.linear(x))", "self.norm(x)")
KEEPS_NORM = "self.norm = nn.LayerNorm(*a)"
SKIPS = candidate("d = x - x.mean(-1, keepdim=True)\nreturn d / torch.sqrt(d.square().mean(-1, keepdim=True) + 1e-5)",
                  KEEPS_NORM)


def test_a_kernel_that_skips_the_weights_is_wrong_and_traits_are_recorded(tmp_path: Path) -> None:
    skips, honest, plain = run(
        tmp_path, (NORM, SKIPS), (NORM, candidate("return self.norm(x)", KEEPS_NORM)),
        (TANH.replace("512, 1024", "8, 8"), candidate("return torch.tanh(x)")))
    assert skips.attempt.verdict.value == "INCORRECT_NUMERICAL"
    assert skips.attempt.kernelbench_correct is True
    assert skips.attempt.evidence["trials"][-1]["kind"] == "weights"
    assert honest.attempt.verdict.value == plain.attempt.verdict.value == "CORRECT"
    held = {one["trait"] for one in honest.attempt.evidence["traits"] if one["holds"]}
    assert "weight_independent" in held
    assert not any(one["holds"] and "passable" in one["trait"] for one in plain.attempt.evidence["traits"])
    assert honest.attempt.protocol_version == PROTOCOL_VERSION
