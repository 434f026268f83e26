"""Samplers: unbiased by enumeration (invariant 8), bounded weights, seeded by identity only."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dice_core.model.noise import SAMPLERS, SDAR_EPS, Sampler, draw_noise, noise_rng


def exact_bound(costs: dict[tuple[bool, ...], np.ndarray], r: int) -> float:
    """Sum over k of the mean cost of the masked tokens, k masked positions chosen uniformly."""
    total = 0.0
    for k in range(1, r + 1):
        masks = [m for m in costs if sum(m) == k]
        total += float(np.mean([costs[m][list(m)].mean() for m in masks]))
    return total


@pytest.mark.parametrize("block_size", [2, 3])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_weighted_cost_is_unbiased(sampler: Sampler, block_size: int) -> None:
    """Mean over draws of sum(weight * cost(mask)) equals the sum over all masks, by brute force."""
    table = np.random.default_rng(5)
    costs = {m: table.random(block_size) + 1.0 for m in itertools.product([False, True], repeat=block_size)}
    expected = exact_bound(costs, block_size)
    blocks = 600
    maskable = np.ones(blocks * block_size, dtype=bool)
    means = []
    for draw in range(60 if sampler == "k_uniform" else 3000):
        noise = draw_noise(maskable, block_size, sampler, noise_rng(1, draw, "doc", 1))
        masks = noise.masked.reshape(blocks, block_size)
        weights = noise.weight.reshape(blocks, block_size)
        table_of = np.array([costs[tuple(m)] for m in costs])
        codes = masks @ (1 << np.arange(block_size)[::-1])
        means.append(float((weights * table_of[codes]).sum() / blocks))
    error = 4.0 * float(np.std(means)) / len(means) ** 0.5
    # sdar integrates t over [eps, 1]: a bias of the order of eps remains.
    assert abs(float(np.mean(means)) - expected) < error + (5 * SDAR_EPS * expected if sampler == "sdar" else 1e-9)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_only_maskable_tokens_are_masked_and_weights_sit_on_them(sampler: Sampler) -> None:
    maskable = np.arange(50) >= 13
    for draw in range(50):
        noise = draw_noise(maskable, 4, sampler, noise_rng(0, draw, "doc", 1))
        assert noise.masked.any()
        assert not noise.masked[:13].any()
        assert ((noise.weight > 0) == noise.masked).all()


def test_k_uniform_weighs_every_block_with_its_size_and_is_balanced() -> None:
    maskable = np.arange(404) >= 2  # the first block has two maskable tokens
    noise = draw_noise(maskable, 4, "k_uniform", noise_rng(0, 0, "doc", 1))
    per_block = noise.weight.reshape(-1, 4).sum(1)
    assert per_block[0] == pytest.approx(2.0)
    assert per_block[1:] == pytest.approx(4.0)
    assert np.bincount(noise.masked.reshape(-1, 4)[1:].sum(1), minlength=5).tolist() == [0, 25, 25, 25, 25]
    assert noise.weight.max() <= 4.0


def test_k_uniform_marginals_are_uniform_for_a_single_block() -> None:
    """Stratification must not fix k where there is only one block to share it."""
    counts = np.bincount(
        [draw_noise(np.ones(4, dtype=bool), 4, "k_uniform", noise_rng(0, i, "d", 1)).masked.sum() for i in range(2000)],
        minlength=5,
    )
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 500) < 100).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_noise_depends_on_its_identity_only(sampler: Sampler) -> None:
    maskable = np.ones(64, dtype=bool)

    def draw(*identity: object) -> bytes:
        return draw_noise(maskable, 4, sampler, noise_rng(*identity)).masked.tobytes()  # type: ignore[arg-type]

    base = (0, 0, "doc", 1)
    assert draw(*base) == draw(*base)
    others = [(1, 0, "doc", 1), (0, 1, "doc", 1), (0, 0, "dod", 1), (0, 0, "doc", 2)]
    assert all(draw(*other) != draw(*base) for other in others)


def test_sdar_forces_a_mask_where_chance_gives_none() -> None:
    """One maskable token and a tiny rate: redraws run out, one token is forced."""

    class Low(np.random.Generator):
        def random(self, size: object = None, *_: object, **__: object) -> object:
            return 0.0 if size is None else np.full(size, 0.99)  # type: ignore[call-overload]

    noise = draw_noise(np.array([False, True]), 2, "sdar", Low(np.random.PCG64(0)))
    assert noise.masked.tolist() == [False, True]
    assert noise.weight[1] == pytest.approx(1.0 / SDAR_EPS)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_nothing_maskable_gives_no_noise(sampler: Sampler) -> None:
    noise = draw_noise(np.zeros(8, dtype=bool), 4, sampler, noise_rng(0, 0, "doc", 1))
    assert not noise.masked.any()
    assert not noise.weight.any()


def test_unknown_sampler_is_named() -> None:
    with pytest.raises(ValueError, match="uniform_t"):
        draw_noise(np.ones(4, dtype=bool), 4, "uniform_t", noise_rng(0, 0, "d", 1))  # type: ignore[arg-type]
