"""Drawing, trials and traits on a real GPU: everything stays on the device."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from dice_core.arena.correctness import LARGE_TRIALS, TRIALS, check_values
from dice_core.arena.drawing import alter, draw, redraw
from dice_core.arena.inputs import leaves
from dice_core.arena.metrics import measure
from dice_core.arena.traits import problem_traits
from dice_core.arena.trials import Trial, TrialMaker
from dice_core.arena.weights import randomised

pytestmark = pytest.mark.gpu


def get_inputs() -> list[Any]:
    return [torch.rand(64, 256), torch.randint(0, 9, (64,)), torch.randn(64, 256) * 2]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(256, 64)
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x: torch.Tensor, index: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.relu(self.linear(x + other))) + index[:, None]


def test_inputs_are_drawn_on_the_device() -> None:
    cuda = torch.device("cuda")
    base = draw(get_inputs, 5, cuda)
    assert base.plain == {0: "rand"}
    assert all(leaf.device.type == "cuda" for leaf in leaves(base.values))
    for kind in {trial.kind for trial in (*TRIALS, *LARGE_TRIALS)} - {"kernelbench", "fresh", "weights"}:
        found = alter(base, kind, 3)
        assert found is not None and not torch.equal(found.values[0], base.values[0])
        assert all(leaf.device.type == "cuda" for leaf in leaves(found.values))
    assert redraw(base.light(), 9, cuda).values[0].device.type == "cuda"


def test_a_generator_that_insists_on_the_host_is_obeyed() -> None:
    def on_host() -> list[Any]:
        return [torch.rand(8, 8, generator=torch.Generator().manual_seed(1))]

    assert draw(on_host, 5, torch.device("cuda")).values[0].device.type == "cuda"


def test_all_trials_and_traits() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    model = Model().cuda()
    device = torch.device("cuda")
    maker = TrialMaker(model, partial(draw, get_inputs, device=device), device, randomised(model, 3))
    made = {}
    for trial in TRIALS:
        one = maker.make(trial.kind, 100 + trial.draw_index, 200 + trial.index, 3, trial.index)
        assert isinstance(one, Trial), one
        made[trial.kind] = one
        assert one.facts["double"] and one.yards[0].row_norm.device.type == "cuda"
        assert check_values([measure(one.expected.clone(), one.expected, one.exact, one.yards[0])]) is None
        assert check_values([measure(one.expected * 1.001, one.expected, one.exact, one.yards[0])]) is not None
    found = problem_traits(maker, made["kernelbench"], made["fresh"], 3, 7)
    assert not any(one["holds"] for one in found if one["trait"] != "tf32_indistinguishable")
