"""Forward process of masked diffusion: which tokens of a document are masked, and what each counts in the loss.

Both samplers estimate the same bound on the negative log likelihood. `sdar` is the sampler of SDAR
(arXiv:2510.06303) and DICE: one mask rate per document, weight 1/p. `k_uniform` integrates the rate out: the
number k of masked tokens of a block is uniform on 1..r, weight r/k. It has the same expectation for eps -> 0 and
no weight above the block size, where 1/p reaches 1/eps.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

Sampler = Literal["k_uniform", "sdar"]
SAMPLERS: tuple[Sampler, ...] = ("k_uniform", "sdar")

#: Smallest mask rate of the `sdar` sampler.
SDAR_EPS = 1e-3
#: How often `sdar` draws again when nothing got masked, before it forces one token.
SDAR_REDRAWS = 10


@dataclass(frozen=True)
class Noise:
    """One noisy copy of a document of n tokens.

    Attributes:
        masked: [n] True where the token is replaced by MASK.
        weight: [n] weight of the token's cross-entropy; 0 where it is not masked.
    """

    masked: BoolArray
    weight: FloatArray


def noise_rng(seed: int, epoch: int, document_id: str, copy: int) -> np.random.Generator:
    """Random stream of one noisy copy; depends on nothing but its identity, so not on rank, batch or order."""
    digest = hashlib.sha256(f"{seed}\0{epoch}\0{copy}\0{document_id}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))


def draw_noise(maskable: BoolArray, block_size: int, sampler: Sampler, rng: np.random.Generator) -> Noise:
    """Draw one noisy copy of a document.

    Args:
        maskable: [n] True for tokens that may be masked (response, its end mark and tail); block 0 starts at 0.
        block_size: tokens of a diffusion block.
        sampler: `k_uniform` or `sdar`.
        rng: the copy's stream, see `noise_rng`.

    Returns:
        The mask and weights. A document with nothing maskable comes back unmasked.

    Raises:
        ValueError: unknown sampler.
    """
    if sampler == "k_uniform":
        return _k_uniform(maskable, block_size, rng)
    if sampler == "sdar":
        return _sdar(maskable, rng)
    raise ValueError(f"unknown noise sampler {sampler!r}; known: {', '.join(SAMPLERS)}")


def _k_uniform(maskable: BoolArray, block_size: int, rng: np.random.Generator) -> Noise:
    """K ~ U{1..r} per block, stratified over the document's blocks of equal r; k random positions; weight r/k."""
    n = maskable.size
    blocks = -(-n // block_size)
    grid = np.zeros((blocks, block_size), dtype=bool)
    grid.reshape(-1)[:n] = maskable
    r = grid.sum(axis=1)
    k = np.zeros(blocks, dtype=np.int64)
    for size in range(1, block_size + 1):
        of_size = np.flatnonzero(r == size)
        if of_size.size:
            # A balanced multiset of 1..size with a random phase, dealt in random order: uniform for every block.
            order = np.argsort(rng.random(of_size.size), kind="stable")
            phase = int(rng.random() * size)
            k[of_size[order]] = (np.arange(of_size.size) + phase) % size + 1
    # Rank maskable positions of each block at random; the k lowest are masked.
    keys = np.where(grid, rng.random(grid.shape), np.inf)
    rank = np.argsort(np.argsort(keys, axis=1, kind="stable"), axis=1, kind="stable")
    masked = (grid & (rank < k[:, None])).reshape(-1)[:n]
    per_block = np.divide(r, k, out=np.zeros(blocks), where=k > 0)
    weight = np.where(masked, np.repeat(per_block, block_size)[:n], 0.0)
    return Noise(masked, weight)


def _sdar(maskable: BoolArray, rng: np.random.Generator) -> Noise:
    """T ~ U(0,1) for the whole document, p = (1-eps) t + eps, weight 1/p; drawn again while nothing is masked."""
    candidates = np.flatnonzero(maskable)
    if not candidates.size:
        return Noise(np.zeros_like(maskable), np.zeros(maskable.size))
    for _ in range(SDAR_REDRAWS + 1):
        p = (1.0 - SDAR_EPS) * rng.random() + SDAR_EPS
        masked = maskable & (rng.random(maskable.size) < p)
        if masked.any():
            break
    else:
        masked = np.zeros_like(maskable)
        masked[candidates[int(rng.random() * candidates.size)]] = True
    return Noise(masked, np.where(masked, 1.0 / p, 0.0))
