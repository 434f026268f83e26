"""What spares copying at KernelBench's sizes: inputs that both sides draw themselves, outputs compared in pieces."""

from __future__ import annotations

import torch

from dice_core.arena import inputs as values
from dice_core.arena.drawing import draw, recipe
from dice_core.arena.trees import PIECE, cut, tensors, total_bytes

CPU = torch.device("cpu")
EMPTY = torch.zeros(256, dtype=torch.uint8)


def test_a_recipe_gives_both_sides_the_same_values_and_every_seed_others() -> None:
    base = draw(lambda: [torch.rand(64, 3), [torch.randn(5, dtype=torch.float64), 7]], 1, CPU).light()
    one, again, other = (values.decode(recipe(base, seed, None, 0), EMPTY, CPU) for seed in (5, 5, 6))
    assert torch.equal(one[0], again[0]) and torch.equal(one[1][0], again[1][0])
    assert not torch.equal(one[0], other[0])
    assert one[0].shape == (64, 3) and one[0].min() >= 0 and one[0].max() < 1
    assert one[1][0].dtype == torch.float64 and one[1][1] == 7


def test_inputs_that_are_not_plain_come_through_the_region() -> None:
    base = draw(lambda: [torch.rand(4), torch.arange(6)], 1, CPU).light()
    region = torch.zeros(4096, dtype=torch.uint8)
    node = recipe(base, 5, region, 1024)
    assert ["draw" in leaf for leaf in tensors(node)] == [True, False]
    assert torch.equal(values.decode(node, region, CPU)[1], torch.arange(6))


def test_large_tensors_are_cut_and_small_ones_kept() -> None:
    big, small = torch.arange(5 * PIECE, dtype=torch.float32).view(5, PIECE), torch.ones(3)
    starts = [[0, 2 * PIECE + 7], []]
    told, _ = values.encode(values.cut((big, small), starts, PIECE), None, 0)
    full, _ = values.encode((big, small), None, 0)
    form = cut(full, 2 * PIECE)
    assert [leaf["shape"] for leaf in tensors(form)] == [leaf["shape"] for leaf in tensors(told)] == [[2 * PIECE], [3]]
    assert total_bytes(form) == total_bytes(told)
    pieces = values.cut((big, small), starts, PIECE)[0]
    assert torch.equal(pieces, torch.cat([big.view(-1)[s : s + PIECE] for s in starts[0]]))


def test_a_piece_beyond_the_end_is_shorter_and_so_does_not_fit_the_form() -> None:
    short = values.cut(torch.zeros(PIECE), [[PIECE // 2]], PIECE)
    assert short.shape == (PIECE // 2,)
