"""Other values for a module's parameters and buffers, so that a kernel which ignores them is found out.

Norms start at scale one and shift zero, running statistics at zero and one: code that skips them passes every check
that keeps these values. Runs in the referee; the judge carries the same values to the candidate, by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

#: Relative size of the perturbation that shows how sensitive a result is; far above fp32 rounding, far below a change.
STEP = 2.0**-20
#: A wide one, which shows where an answer jumps: elements near a tie (of a top-k, say) change sides.
WIDE_STEP = 2.0**-7


def randomised(model: Any, seed: int, *, constants: bool = True) -> dict[str, torch.Tensor]:
    """New values by name for the floating parameters of `model`, and for its buffers that start constant.

    A tensor whose elements are all equal gets values around that one: positive ones 0.5 to 1.5 times as large (so that
    variances stay positive), zeros a tenth of a standard normal. All other parameters keep their values in another
    order, which leaves their distribution as it was. Buffers that are not constant stay: a mask or a table has a
    meaning.

    Args:
        model: the reference.
        seed: of the values.
        constants: alter constant tensors too; without it only the others are reordered.
    """
    if not isinstance(model, torch.nn.Module):
        return {}
    parameters = {id(value) for value in model.parameters()}
    found: dict[str, torch.Tensor] = {}
    for number, (name, value) in enumerate(model.state_dict(keep_vars=True).items()):
        if not value.is_floating_point() or value.numel() == 0:
            continue
        generator = torch.Generator(value.device).manual_seed((seed + 7919 * number) & ((1 << 63) - 1))
        flat = value.detach().reshape(-1)
        if bool((flat == flat[0]).all()):
            first = float(flat[0])
            drawn = flat.numel() == 1 and first not in (0.0, 1.0)  # a single random value, not one that starts constant
            if not (constants or drawn) or not abs(first) < 1e30:
                continue
            if first == 0.0:
                new = torch.randn(flat.shape, generator=generator, device=flat.device) * 0.1
            else:
                new = first * (0.5 + torch.rand(flat.shape, generator=generator, device=flat.device))
        elif id(value) in parameters:
            new = flat[torch.randperm(flat.numel(), generator=generator, device=flat.device)]
        else:
            continue
        found[name] = new.to(value.dtype).view(value.shape)
    return found


@contextmanager
def replaced(model: Any, changes: dict[str, torch.Tensor]) -> Iterator[None]:
    """The model with these values in place, and as it was afterwards."""
    if not changes:
        yield
        return
    own = model.state_dict()
    before = {name: own[name].clone() for name in changes}
    try:
        for name, value in changes.items():
            own[name].copy_(value)
        yield
    finally:
        for name, value in before.items():
            own[name].copy_(value)


def nudged(value: torch.Tensor, generator: torch.Generator, step: float = STEP) -> torch.Tensor:
    """`value` with each element changed by a random relative amount of the order of `step`."""
    change = torch.randn(value.shape, generator=generator, device=value.device, dtype=value.dtype)
    return change.mul_(step).add_(1.0).mul_(value)


@contextmanager
def nudged_parameters(model: Any, generator: torch.Generator, step: float = STEP) -> Iterator[None]:
    """The model with all floating parameters nudged, and as it was afterwards."""
    if not isinstance(model, torch.nn.Module):
        yield
        return
    kept = [(value, value.detach().clone()) for value in model.parameters() if value.is_floating_point()]
    try:
        for value, before in kept:
            value.data.copy_(nudged(before, generator, step))
        yield
    finally:
        for value, before in kept:
            value.data.copy_(before)


def to_tf32(value: torch.Tensor) -> torch.Tensor:
    """fp32 values rounded to the ten explicit bits of TF32's significand, half away from zero; others as they are."""
    if value.dtype is not torch.float32:
        return value
    return ((value.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
