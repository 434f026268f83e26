"""Inputs of trials, and other weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dice_core.arena import inputs, weights
from dice_core.arena.drawing import Drawn, alter, described, draw, redraw
from dice_core.arena.trees import tensors

CPU = torch.device("cpu")
KINDS = ("normal", "scaled", "sparse", "integers", "outlier", "permuted", "composite")


def get_inputs() -> list[Any]:
    mask = torch.rand(64, 40) > 0.5
    return [torch.rand(64, 40), torch.rand(64, 40) * 3, torch.randint(0, 9, (64,)), mask, 7, torch.randn(64, 8)]


@pytest.mark.parametrize("kind", KINDS)
def test_only_plain_floating_inputs_are_altered(kind: str) -> None:
    base = draw(get_inputs, 5, CPU)
    assert base.plain == {0: "rand", 4: "randn"}  # places among the tensors; 7 is none
    found = alter(base, kind, 11)
    again = alter(draw(get_inputs, 5, CPU), kind, 11)
    assert found is not None and again is not None
    for place, (old, new) in enumerate(zip(base.values, found.values, strict=True)):
        if place in (0, 5):
            assert not torch.equal(old, new) and new.dtype == old.dtype and new.shape == old.shape
            assert torch.equal(new, again.values[place])  # made again from its seeds
        else:
            assert new is old


def test_what_the_kinds_are() -> None:
    base = draw(lambda: [torch.rand(512, 64)], 1, CPU)

    def made(kind: str) -> torch.Tensor:
        found = alter(base, kind, 3)
        assert found is not None
        value = found.values[0]
        assert isinstance(value, torch.Tensor)
        return value

    assert made("normal").min() < -2
    rms = made("scaled").square().mean(dim=1).sqrt()
    assert rms.max() / rms.min() > 500
    assert (made("scaled").mean(dim=1).abs() / rms > 0.5).any()  # off centre
    sparse = made("sparse")
    assert (sparse == 0).float().mean() > 0.4 and sparse.unique().numel() < 40
    assert made("integers").unique().tolist() == [-1, 0, 1]
    peaks = made("outlier").abs().amax(dim=1)
    assert (peaks > 100).sum() == 1
    assert torch.equal(made("permuted").sort(dim=0).values, base.values[0].sort(dim=0).values)
    parts = made("composite").view(8, 64, 64)
    assert torch.equal(parts[:2].reshape(-1, 64), base.values[0][:128])
    assert parts[6].unique().tolist() == [-1, 0, 1]


def test_values_that_belong_together_are_permuted_together() -> None:
    found = alter(Drawn([torch.arange(9.0), torch.arange(9.0)], {0: "rand", 1: "rand"}), "permuted", 4)
    assert found is not None
    assert torch.equal(found.values[0], found.values[1])


def test_a_redraw_needs_no_old_values() -> None:
    base = draw(get_inputs, 5, CPU)
    light = base.light()
    assert light.values[0].device.type == "meta"
    new = redraw(light, 8, CPU).values
    assert new[0].shape == (64, 40) and new[0].min() >= 0 and new[0].max() < 1
    assert torch.equal(new[1], base.values[1])


def test_without_random_inputs_there_is_nothing_to_alter() -> None:
    assert alter(draw(lambda: [torch.ones(3)], 1, CPU), "normal", 2) is None


class Norms(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.register_buffer("mask", torch.tril(torch.ones(4, 4)))


def test_other_weights_reach_what_starts_constant() -> None:
    model = Norms()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    changes = weights.randomised(model, 3)
    assert set(changes) == {"linear.weight", "linear.bias", "norm.weight", "norm.bias", "norm.running_mean",
                            "norm.running_var"}  # neither the counter nor the mask
    assert (changes["norm.running_var"] > 0).all() and (changes["norm.weight"] != 1).all()
    for one, other in ((changes, before), (before, changes)):
        assert set(one["linear.weight"].flatten().tolist()) == set(other["linear.weight"].flatten().tolist())
    assert set(weights.randomised(model, 3, constants=False)) == {"linear.weight", "linear.bias"}
    with weights.replaced(model, changes):
        assert torch.equal(model.norm.weight, changes["norm.weight"])
    with weights.nudged_parameters(model, torch.Generator().manual_seed(1)):
        moved = (model.linear.weight - before["linear.weight"]).norm() / before["linear.weight"].norm()
        assert 0.1 * weights.STEP < moved < 10 * weights.STEP
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_tf32_keeps_ten_bits() -> None:
    value = torch.tensor([1.0, 1.0 + 2**-10, 1.0 + 2**-12, -3.14159])
    assert weights.to_tf32(value)[:3].tolist() == [1.0, 1.0 + 2**-10, 1.0]
    assert abs(float(weights.to_tf32(value)[3]) + 3.14159) < 3.14159 * 2**-11
    assert weights.to_tf32(torch.arange(3)).dtype is torch.int64


@pytest.mark.parametrize("shape", [(16,), (1, 16), (2, 16), (3, 4, 16)])
def test_one_row_is_always_large_enough_for_an_exponential_to_overflow(shape: tuple[int, ...]) -> None:
    base = draw(lambda: [torch.rand(*shape)], 1, torch.device("cpu"))
    for seed in range(50):
        altered = alter(base, "scaled", seed)
        assert altered is not None
        assert torch.exp(altered.values[0]).isinf().any()


@pytest.mark.parametrize("kind", ["", "normal", "scaled", "sparse", "integers", "outlier", "permuted", "composite"])
def test_a_recipe_gives_the_very_values_that_the_other_side_drew(kind: str) -> None:
    def get_inputs() -> list[Any]:
        by_name = {"b": torch.randn(6, 4), "a": torch.rand(3, 16, 5, dtype=torch.float16)}
        return [torch.rand(24, 8), by_name, torch.rand(7) * 2, 3]

    device = torch.device("cpu")
    base = draw(get_inputs, 1, device).light()
    made = redraw(base, 5, device)
    if kind:
        altered = alter(made, kind, 9)
        assert altered is not None
        made = altered
    region = torch.zeros(1 << 12, dtype=torch.uint8)
    node = described(made, region, 0)
    assert [("draw" in leaf) for leaf in tensors(node)] == [True, True, True, False]  # the product has no recipe
    got = inputs.decode(node, region, device)
    for ours, theirs in zip(inputs.leaves(got), inputs.leaves(made.values), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
