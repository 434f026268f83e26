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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dice_core.arena.inputs import UnsupportedValue, encode, leaves, map_leaves
from dice_core.arena.leafvalues import altered, drawn, seed_of
from dice_core.arena.trees import Node, tensors

#: Calls that give back the very values they were given, for following a generator's output to the input list.
_CARRIERS = {"to", "cuda", "cpu", "contiguous", "requires_grad_", "view", "reshape", "clone", "detach"}


@dataclass
class Drawn:
    """One set of inputs.

    `plain[i]` names the generator (`rand`, `randn`) that made tensor i unaltered, `recipes[i]` says from which seeds
    tensor i can be drawn again anywhere.
    """

    values: list[Any]
    plain: dict[int, str] = field(default_factory=dict)
    recipes: dict[int, dict[str, Any]] = field(default_factory=dict)

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

    def change(index: int, leaf: torch.Tensor) -> torch.Tensor:
        kind = base.plain.get(index)
        return leaf if kind is None else drawn(leaf.shape, leaf.dtype, kind, seed_of(seed, index), device)

    return Drawn(map_leaves(base.values, change), base.plain, _recipes(base, seed))


def recipe(base: Drawn, seed: int, buffer: torch.Tensor | None, offset: int) -> Node:
    """The tree of a redraw that each side makes itself: see `described`."""
    return described(Drawn(base.values, base.plain, _recipes(base, seed)), buffer, offset)


def _recipes(base: Drawn, seed: int) -> dict[int, dict[str, Any]]:
    return {index: {"kind": kind, "seed": seed_of(seed, index)} for index, kind in base.plain.items()}


def described(made: Drawn, buffer: torch.Tensor | None, offset: int) -> Node:
    """The tree of inputs: recipes for what has one, bytes in the region for the others.

    With recipes nothing has to be copied between processes, which at KernelBench's sizes takes longer than the calls.
    """
    nothing = torch.empty(0)
    node, _ = encode(
        map_leaves(made.values, lambda index, leaf: nothing.to(leaf.dtype) if index in made.recipes else leaf),
        buffer, offset)
    for index, (told, leaf) in enumerate(zip(tensors(node), leaves(made.values), strict=True)):
        if index in made.recipes:
            told |= {"shape": list(leaf.shape), "nbytes": leaf.numel() * leaf.element_size(),
                     "draw": made.recipes[index]}
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
        return altered(leaf, kind, seed, index) if index in base.plain else leaf

    recipes = {index: {**told, "alter": kind, "alter_seed": seed, "index": index}
               for index, told in base.recipes.items()}
    return Drawn(map_leaves(base.values, change), base.plain, recipes)
