from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dice_core.curation.difficulty import difficulty
from dice_core.curation.operators import module_traits
from dice_core.curation.parameters import parameter_count
from dice_core.errors import SourceError

FRAME = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

width = 8

def helper(x):
    return torch.exp(x) + 1

class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)

    def forward(self, x):
        return F.relu(self.fc(x))

class Model(nn.Module):
    def __init__(self, n=4):
        super().__init__()
        {init}

    def forward(self, x, y=None):
        {forward}

def get_inputs():
    return [torch.rand(2, 4)]

def get_init_inputs():
    return [{given}]
"""


def module(forward: str, init: str = "pass", given: str = "") -> str:
    return FRAME.format(forward=forward, init=init, given=given)


@pytest.mark.parametrize(
    ("level", "operators", "forward", "init"),
    [
        (0, "", "return x.view(-1).t().float()", "pass"),
        (0, "", "return torch.zeros(3)", "pass"),
        (0, "", "return self.flat(x)", "self.flat = nn.Flatten()"),
        (1, "relu", "return torch.relu(x.view(-1))", "pass"),
        (1, "ReLU", "return self.act(x)", "self.act = nn.ReLU()"),
        (1, "ReLU", "return nn.ReLU()(x)", "pass"),
        (1, "tanh", "return self.act(x)", "self.act = torch.tanh"),
        (1, "softmax", "return x.softmax(-1)", "pass"),
        (1, "+", "return x + self.bias", "self.bias = nn.Parameter(torch.zeros(4))"),
        (1, "relu", "k = width * 2 + 1\n        return torch.relu(x[:, :k])", "pass"),
        (1, "MSELoss", "loss = nn.MSELoss()\n        return loss(x, y)", "pass"),
        (2, "exp +", "return helper(x)", "pass"),
        (2, "Linear relu", "return self.b(x)", "self.b = Block(n)"),
        (2, "Linear ReLU", "return self.seq(x)", "self.seq = nn.Sequential(nn.Linear(n, n), nn.ReLU())"),
        (2, "- abs", "return -x.abs()", "pass"),
        (2, "> where", "return torch.where(x > 0, x, y)", "pass"),
        (2, "Conv2d Conv2d", "return self.b(self.a(x))", "self.a = nn.Conv2d(4, 4, 1); self.b = nn.Conv2d(4, 4, 1)"),
        (3, "LSTM", "return self.rnn(x)[0]", "self.rnn = nn.LSTM(4, 4)"),
        (3, "Linear relu Linear relu", "return self.b(self.a(x))", "self.a = Block(n); self.b = Block(n)"),
        (3, "Linear ReLU Linear", "for one in self.layers:\n            x = one(x)\n        return self.out(F.relu(x))",
         "self.layers = nn.ModuleList([nn.Linear(n, n) for _ in range(3)]); self.out = nn.Linear(n, n)"),
        (3, "Linear Linear Tanh", "return self.net(x)",
         "ls = [nn.Linear(n, n)]; ls.append(nn.Linear(n, n)); ls.append(nn.Tanh()); self.net = nn.Sequential(*ls)"),
    ],
)  # fmt: skip
def test_levels(level: int, operators: str, forward: str, init: str) -> None:
    found = difficulty(module(forward, init))
    assert sorted(one.lower() for one in found.traits.operators) == sorted(operators.lower().split())
    assert found.level == level


def test_depth_is_the_longest_chain_and_control_flow_is_counted() -> None:
    wide = module_traits(module("return torch.exp(x) + torch.sin(torch.cos(x))"))
    assert (len(wide.operators), wide.depth) == (4, 3)
    text = "for i in range(3):\n            x = x * 2\n        if width > 3:\n            x = x + 1\n        return x"
    flow = module_traits(module(text))
    assert (flow.loops, flow.branches, flow.operators) == (1, 1, ("*", "+"))


def test_recursion_ends() -> None:
    assert module_traits(module("return self.forward(x)")).operators
    text = module("return helper(x)").replace("torch.exp(x) + 1", "helper(helper(x))")
    assert module_traits(text).operators


@pytest.mark.parametrize("source", ["def (", "class Other: pass", "class Model: pass", "x = 1\0"])
def test_what_is_no_module_is_refused(source: str) -> None:
    with pytest.raises(SourceError, match="pytorch_code"):
        difficulty(source)


@pytest.mark.parametrize(
    ("count", "init", "given"),
    [
        (20, "self.fc = nn.Linear(n, n)", ""),
        (72, "self.fc = nn.Linear(n, width)", "width"),
        (64, "self.fc = nn.Linear(n, width, bias=False)", "2 * width // 2"),
        (3 * 8 * 9 + 8, "self.c = nn.Conv2d(3, 8, 3)", ""),
        (8 * 15 + 8, "self.c = nn.Conv2d(8, 8, kernel_size=(3, 5), groups=8)", ""),
        (8 * 4 * 27 + 4, "self.c = nn.ConvTranspose3d(8, 4, 3)", ""),
        (16, "self.n = nn.BatchNorm2d(width)", ""),
        (0, "self.n = nn.InstanceNorm1d(width)", ""),
        (32, "self.n = nn.LayerNorm((2, n * 2))", ""),
        (8, "self.n = nn.RMSNorm(8)", ""),
        (40, "self.e = nn.Embedding(10, n)", ""),
        (12, "self.p = nn.Parameter(torch.randn(3, n))", ""),
        (12, "self.p = nn.Parameter(torch.zeros((3, 4)))", ""),
        (21, "self.s = nn.Sequential(nn.Linear(n, 4), nn.PReLU(), nn.Tanh())", ""),
        (0, "pass", ""),
        (None, "self.r = nn.LSTM(n, n)", ""),
        (None, "self.r = [nn.Linear(n, n) for _ in range(3)]", ""),
        (None, "self.r = nn.Linear(unknown, n)", ""),
        (None, "for i in range(3): self.r = nn.Linear(n, n)", ""),
        (None, "self.r = Block(n)", ""),
    ],
)
def test_parameters_are_counted_where_the_text_tells(count: int | None, init: str, given: str) -> None:
    assert parameter_count(module("return x", init, given)) == count


def test_every_real_task_has_a_level(real_data: Path) -> None:
    items = json.loads((real_data / "dice" / "end_to_end_kernel_generation_4000.json").read_text(encoding="utf-8"))
    found = [difficulty(item["pytorch_code"]) for item in items]
    same = sum(one.level == int(item["level"]) for one, item in zip(found, items, strict=True))
    assert same >= 3400
    assert all((one.level == 0) == (not one.traits.operators) for one in found)


def test_kernelbench_levels_are_met(real_data: Path) -> None:
    rows = pq.ParquetFile(real_data / "kernelbench" / "kernelbench_v0_2.parquet").read().to_pylist()
    same = [difficulty(row["code"]).level == row["level"] for row in rows if row["level"] <= 3]
    assert len(same) == 250
    assert sum(same) >= 220


@pytest.mark.parametrize("terms", [300, 600, 900, 1500, 3000])
def test_deep_nesting_is_no_crash(terms: int) -> None:
    chain = "+".join(["x"] * terms)
    source = f"class Model:\n    def __init__(self):\n        self.a = {chain}\n"
    source += f"    def forward(self, x):\n        return {chain}\n"
    source += "def get_init_inputs():\n    return []\n"
    assert parameter_count(source) in (0, None)
    try:
        assert difficulty(source).level == 2
    except SourceError as error:
        assert "pytorch_code" in str(error)
