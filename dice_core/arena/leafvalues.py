"""Values of one input tensor from seeds: what `torch.rand` or `torch.randn` gives, and harder values of the same form.

Both sides of an evaluation can draw them, each on its own device.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

#: Scale of the one large row, in standard deviations of the others.
_OUTLIER = 1e3
_SEED_MASK = (1 << 63) - 1


def seed_of(seed: int, index: int) -> int:
    """Seed of the tensor at this place among the inputs."""
    return (seed + 7919 * index) & _SEED_MASK


def drawn(shape: list[int] | torch.Size, dtype: torch.dtype, kind: str, seed: int, device: torch.device
          ) -> torch.Tensor:
    """A tensor of kind `rand` or `randn`."""
    generator = torch.Generator(device).manual_seed(seed)
    make = torch.rand if kind == "rand" else torch.randn
    return make(shape, generator=generator, dtype=dtype, device=device)


def altered(leaf: torch.Tensor, kind: str, seed: int, index: int) -> torch.Tensor:
    """Harder values in place of `leaf`, of one of the kinds of `drawing.alter`.

    Args:
        leaf: what the problem's own generator gave.
        kind: of the alteration.
        seed: of the alteration of all inputs.
        index: of the leaf among the inputs.
    """
    if leaf.numel() == 0:
        return leaf
    generator = torch.Generator(leaf.device).manual_seed(seed_of(seed, index))
    if kind == "permuted":
        # Equal sizes get the same order, so that what belongs together stays together.
        shared = torch.Generator(leaf.device).manual_seed(seed)
        return leaf[torch.randperm(leaf.shape[0], generator=shared, device=leaf.device)] if leaf.dim() else leaf
    if kind == "composite":
        return _composite(leaf, generator)
    return _MAKERS[kind](leaf.shape, generator, leaf.device).to(leaf.dtype)


_Maker = Callable[[torch.Size, torch.Generator, torch.device], torch.Tensor]


def _rows(shape: torch.Size) -> tuple[int, ...]:
    return (*shape[:-1], 1) if len(shape) else ()


def _normal(shape: torch.Size, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    return torch.randn(shape, generator=generator, device=device)


def _scaled(shape: torch.Size, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    made = torch.randn(shape, generator=generator, device=device)
    uniform = [torch.rand(_rows(shape), generator=generator, device=device) for _ in range(3)]
    if made.numel():
        # With a few rows chance alone may leave out the large ones, on which an exponential overflows.
        top = int(torch.randint(uniform[0].numel(), (), generator=generator, device=device))
        for values, value in zip(uniform, (1.0, 0.0, 1.0), strict=True):
            values.view(-1)[top] = value
    offset = (uniform[0] * 6 - 3) * (uniform[1] < 0.5)
    return made.add_(offset).mul_(torch.exp(math.log(10.0) * (uniform[2] * 4 - 2)))


def _sparse(shape: torch.Size, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    made = torch.randn(shape, generator=generator, device=device).mul_(2).round_().mul_(0.5)
    return made.masked_fill_(torch.rand(shape, generator=generator, device=device) < 0.5, 0.0)


def _integers(shape: torch.Size, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    return torch.randint(-1, 2, shape, generator=generator, device=device, dtype=torch.int8).float()


def _outlier(shape: torch.Size, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    made = torch.randn(shape, generator=generator, device=device)
    rows = made.view(-1, shape[-1]) if len(shape) else made.view(1, 1)
    rows[int(torch.randint(rows.shape[0], (), generator=generator, device=device))] *= _OUTLIER
    return made


_MAKERS: dict[str, _Maker] = {
    "normal": _normal, "scaled": _scaled, "sparse": _sparse, "integers": _integers, "outlier": _outlier}


def _composite(leaf: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The rows in parts, one for each kind; the first quarter keeps the problem's own values."""
    rows = leaf.numel() // leaf.shape[-1] if leaf.dim() else 1
    if rows < 8:
        return _scaled(leaf.shape, generator, leaf.device).to(leaf.dtype)
    made = leaf.clone(memory_format=torch.contiguous_format)
    flat, step = made.view(rows, -1), rows // 8
    for number, kind in enumerate(("normal", "normal", "scaled", "sparse", "integers", "outlier")):
        part = flat[(2 + number) * step : (3 + number) * step]
        part.copy_(_MAKERS[kind](part.shape, generator, leaf.device))
    return made
