"""Inputs of trials and timed calls: the problem's own generator, and harder values of the same form.

Everything is drawn on the device that will use it: at KernelBench's sizes the host's generator gives 0.2-0.3 GB/s, so
that drawing alone would take most of an evaluation. Only tensors that come straight from `torch.rand` or `torch.randn`
are ever altered: what a problem computes its inputs with (a mask, a probability, labels) may have a meaning, and
integer and boolean inputs always stay as the problem draws them.

The kinds follow what robust kernel evaluators draw: scaled, tied, sparse and exactly representable values beside
uniform ones (kernel-evaluation practice as in flashinfer-bench, BackendBench and deep-reinforce's correctness check).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dice_core.arena.inputs import UnsupportedValue, encode, leaves, map_leaves
from dice_core.arena.trees import Node, tensors

#: Calls that give back the very values they were given, for following a generator's output to the input list.
_CARRIERS = {"to", "cuda", "cpu", "contiguous", "requires_grad_", "view", "reshape", "clone", "detach"}
#: Scale of the one large row, in standard deviations of the others.
_OUTLIER = 1e3


@dataclass
class Drawn:
    """One set of inputs. `plain[i]` names the generator (`rand`, `randn`) that made tensor i unaltered."""

    values: list[Any]
    plain: dict[int, str] = field(default_factory=dict)

    def light(self) -> Drawn:
        """The same without the values of plain tensors, which a redraw does not need."""
        return Drawn(map_leaves(self.values, lambda index, leaf: leaf.to("meta") if index in self.plain else leaf),
                     self.plain)


class _Follow(TorchFunctionMode):
    """Notes which tensors come from torch.rand or torch.randn without any arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.origin: dict[int, tuple[torch.Tensor, str]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if isinstance(result, torch.Tensor):
            if name in ("rand", "randn", "rand_like", "randn_like"):
                self.origin[id(result)] = (result, name.removesuffix("_like"))
            elif name in _CARRIERS and args and id(args[0]) in self.origin:
                self.origin[id(result)] = (result, self.origin[id(args[0])][1])
            else:
                self.origin.pop(id(result), None)
        return result


def draw(get_inputs: Callable[[], Any], seed: int, device: torch.device) -> Drawn:
    """Call a problem's own `get_inputs()` under `seed` with `device` as the default device.

    KernelBench draws on the host and moves; the distribution is the same. A generator that fails with a default
    device is called again without one.

    Raises:
        UnsupportedValue: it does not return a list or tuple.
    """
    follow = _Follow()
    torch.manual_seed(seed)
    try:
        with contextlib.nullcontext() if device.type == "cpu" else torch.device(device), follow:
            made = get_inputs()
    except Exception:
        if device.type == "cpu":
            raise
        follow = _Follow()
        torch.manual_seed(seed)
        with follow:
            made = get_inputs()
    if not isinstance(made, list | tuple):
        raise UnsupportedValue(f"get_inputs() returned {type(made).__name__}, not a list")
    plain = {
        index: follow.origin[id(leaf)][1]
        for index, leaf in enumerate(leaves(list(made)))
        if id(leaf) in follow.origin and leaf.is_floating_point()
    }
    placed = map_leaves(list(made), lambda _, leaf: leaf.detach().to(device))
    return Drawn(placed, plain)


def redraw(base: Drawn, seed: int, device: torch.device) -> Drawn:
    """New values of the same distribution for every plain floating input, drawn on `device`; others are kept."""
    generator = torch.Generator(device).manual_seed(seed)

    def change(index: int, leaf: torch.Tensor) -> torch.Tensor:
        kind = base.plain.get(index)
        if kind is None:
            return leaf
        make = torch.rand if kind == "rand" else torch.randn
        return make(leaf.shape, generator=generator, dtype=leaf.dtype, device=device)

    return Drawn(map_leaves(base.values, change), base.plain)


def recipe(base: Drawn, seed: int, buffer: torch.Tensor | None, offset: int) -> Node:
    """The tree of a redraw that each side makes itself: seeds for plain inputs, bytes in the region for others.

    Nothing has to be copied between processes, which at KernelBench's sizes takes longer than the calls.
    """
    nothing = torch.empty(0)
    node, _ = encode(
        map_leaves(base.values, lambda index, leaf: nothing.to(leaf.dtype) if index in base.plain else leaf),
        buffer, offset)
    for index, (told, leaf) in enumerate(zip(tensors(node), leaves(base.values), strict=True)):
        if index in base.plain:
            told |= {"shape": list(leaf.shape), "nbytes": leaf.numel() * leaf.element_size(),
                     "draw": {"kind": base.plain[index], "seed": (seed + 7919 * index) & ((1 << 63) - 1)}}
    return node


def alter(base: Drawn, kind: str, seed: int) -> Drawn | None:
    """Harder values for every plain floating input; None when there is none.

    Args:
        base: a draw of the problem's own generator.
        kind: `normal`, `scaled` (rows of scale 10^U(-2, 2), half of them off centre, one for certain at the top of
            both), `sparse` (exact zeros and ties), `integers` (-1, 0, 1), `outlier` (one row a thousand times larger),
            `permuted` (the same slices of the first dimension in another order), or `composite` (rows divided among
            the others: for inputs too large for a trial each).
        seed: of the alteration.

    Rows are slices of the last dimension.
    """
    if not base.plain:
        return None

    def change(index: int, leaf: torch.Tensor) -> torch.Tensor:
        if index not in base.plain or leaf.numel() == 0:
            return leaf
        generator = torch.Generator(leaf.device).manual_seed((seed + 7919 * index) & ((1 << 63) - 1))
        if kind == "permuted":
            # Equal sizes get the same order, so that what belongs together stays together.
            shared = torch.Generator(leaf.device).manual_seed(seed)
            return leaf[torch.randperm(leaf.shape[0], generator=shared, device=leaf.device)] if leaf.dim() else leaf
        if kind == "composite":
            return _composite(leaf, generator)
        return _MAKERS[kind](leaf.shape, generator, leaf.device).to(leaf.dtype)

    return Drawn(map_leaves(base.values, change), base.plain)


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
