"""Tensors in and out of shared regions, and the drawing of inputs. Runs inside children (needs torch)."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dice_core.arena.trees import ITEM_BYTES, Node, aligned

_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_BYTES}
_HOST = torch.device("cpu")
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
#: Calls that give back the very values they were given, for following a generator's output to the input list.
_CARRIERS = {"to", "cuda", "cpu", "contiguous", "requires_grad_", "view", "reshape", "clone", "detach"}


class UnsupportedValue(Exception):
    """A value that cannot cross between processes."""


def as_bytes(region: mmap.mmap) -> torch.Tensor:
    """A region as a uint8 tensor that shares its memory."""
    return torch.frombuffer(region, dtype=torch.uint8)


def view_of(buffer: torch.Tensor, node: Node) -> torch.Tensor:
    """The tensor of a node as a view of the region."""
    raw = buffer[node["offset"] : node["offset"] + node["nbytes"]]
    return raw.view(_DTYPES[node["dtype"]]).view(node["shape"])


def encode(value: object, buffer: torch.Tensor | None, offset: int, *, strict: bool = True) -> tuple[Node, int]:
    """Describe `value` and write its tensors into `buffer` from `offset` on; returns the tree and the next offset.

    Args:
        value: nested lists, tuples and dicts of tensors and scalars.
        buffer: uint8 view of a region, or None to describe only.
        offset: where the first tensor may begin, in bytes.
        strict: raise on values that cannot cross; otherwise they become an `other` node naming their type.

    Raises:
        UnsupportedValue: a type or dtype that cannot cross, or the region is too small.
    """
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, buffer, offset)
    if isinstance(value, list | tuple):
        items = []
        for item in value:
            node, offset = encode(item, buffer, offset, strict=strict)
            items.append(node)
        return {"k": "list" if isinstance(value, list) else "tuple", "items": items}, offset
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        items, keys = [], sorted(value)  # by name: the order of insertion says nothing
        for key in keys:
            node, offset = encode(value[key], buffer, offset, strict=strict)
            items.append(node)
        return {"k": "dict", "keys": keys, "items": items}, offset
    if value is None:
        return {"k": "none"}, offset
    if isinstance(value, bool):
        return {"k": "bool", "v": value}, offset
    if isinstance(value, int):
        return {"k": "int", "v": str(value)}, offset
    if isinstance(value, float):
        return {"k": "float", "v": value.hex()}, offset
    if isinstance(value, str):
        return {"k": "str", "v": value}, offset
    if strict:
        raise UnsupportedValue(f"a value of type {type(value).__name__} cannot cross between processes")
    return {"k": "other", "type": f"{type(value).__module__}.{type(value).__qualname__}"[:80]}, offset


def _encode_tensor(value: torch.Tensor, buffer: torch.Tensor | None, offset: int) -> tuple[Node, int]:
    name = _NAMES.get(value.dtype)
    if name is None or value.layout is not torch.strided:
        raise UnsupportedValue(f"a tensor of dtype {value.dtype} and layout {value.layout} cannot cross")
    offset = aligned(offset)
    nbytes = value.numel() * value.element_size()
    node: Node = {"k": "tensor", "dtype": name, "shape": list(value.shape), "offset": offset, "nbytes": nbytes}
    if buffer is not None and nbytes:
        if offset + nbytes > buffer.numel():
            raise UnsupportedValue(f"{nbytes} bytes at {offset} do not fit into a region of {buffer.numel()} bytes")
        view_of(buffer, node).copy_(value.detach())
    return node, offset + nbytes


def decode(node: Node, buffer: torch.Tensor, device: torch.device) -> Any:
    """Fresh value of a tree; tensors are copies on `device`."""
    kind = node["k"]
    if kind == "tensor":
        source = view_of(buffer, node)
        return source.clone() if device.type == "cpu" else source.to(device)
    if kind == "list":
        return [decode(item, buffer, device) for item in node["items"]]
    if kind == "tuple":
        return tuple(decode(item, buffer, device) for item in node["items"])
    if kind == "dict":
        return {key: decode(item, buffer, device) for key, item in zip(node["keys"], node["items"], strict=True)}
    if kind == "int":
        return int(node["v"])
    if kind == "float":
        return float.fromhex(node["v"])
    return node.get("v")


def packed(value: object) -> tuple[Node, torch.Tensor]:
    """The tree of `value` and one buffer that holds the bytes of all its tensors."""
    _, size = encode(value, None, 0)
    buffer = torch.zeros(max(size, 1), dtype=torch.uint8)
    return encode(value, buffer, 0)[0], buffer


def leaves(value: object) -> list[torch.Tensor]:
    """Tensors of a nested value, in the order of `trees.tensors`."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    return []


def map_leaves(value: Any, change: Callable[[int, torch.Tensor], torch.Tensor], _count: list[int] | None = None) -> Any:
    """The same nesting with each tensor replaced by `change(index, tensor)`."""
    count = [0] if _count is None else _count
    if isinstance(value, torch.Tensor):
        count[0] += 1
        return change(count[0] - 1, value)
    if isinstance(value, list):
        return [map_leaves(item, change, count) for item in value]
    if isinstance(value, tuple):
        return tuple(map_leaves(item, change, count) for item in value)
    if isinstance(value, dict):
        return {key: map_leaves(value[key], change, count) for key in sorted(value)}
    return value


@dataclass
class Drawn:
    """One set of inputs on the host. `plain[i]` names the generator (`rand`, `randn`) that made tensor i unaltered."""

    values: list[Any]
    plain: dict[int, str] = field(default_factory=dict)


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


def draw(get_inputs: Callable[[], Any], seed: int) -> Drawn:
    """Call a problem's own `get_inputs()` on the host under `seed`, as KernelBench does.

    Raises:
        UnsupportedValue: it does not return a list or tuple.
    """
    torch.manual_seed(seed)
    with _Follow() as follow:
        values = get_inputs()
    if not isinstance(values, list | tuple):
        raise UnsupportedValue(f"get_inputs() returned {type(values).__name__}, not a list")
    plain = {
        index: follow.origin[id(leaf)][1]
        for index, leaf in enumerate(leaves(list(values)))
        if id(leaf) in follow.origin and leaf.is_floating_point()
    }
    host = map_leaves(list(values), lambda _, leaf: leaf.detach().cpu())
    return Drawn(host, plain)


def redraw(base: Drawn, seed: int, device: torch.device = _HOST) -> Drawn:
    """New values of the same distribution for every plain floating input, drawn on `device`; others are kept."""
    generator = torch.Generator(device).manual_seed(seed)

    def change(index: int, leaf: torch.Tensor) -> torch.Tensor:
        kind = base.plain.get(index)
        if kind is None:
            return leaf
        make = torch.rand if kind == "rand" else torch.randn
        return make(leaf.shape, generator=generator, dtype=leaf.dtype, device=device)

    return Drawn(map_leaves(base.values, change), base.plain)


def standard_normal(base: Drawn, seed: int) -> Drawn | None:
    """Standard normal values for every plain floating input; None when there is none."""
    if not base.plain:
        return None
    normal = Drawn(base.values, dict.fromkeys(base.plain, "randn"))
    return Drawn(redraw(normal, seed).values, base.plain)


def mixture(base: Drawn, seed: int) -> Drawn | None:
    """Harder values for every plain floating input: rows of scale 10^U(-2, 2), exact zeros and ties.

    Rows are slices of the last dimension. A tenth of the entries is zero; a quarter of the rows is rounded to whole
    multiples of its scale, which makes ties. None when no input is plain. Idea: kernel-evaluation mixtures as used by
    robust evaluators (structured, scaled and tied inputs beside uniform ones).
    """
    if not base.plain:
        return None
    generator = torch.Generator().manual_seed(seed)

    def change(index: int, leaf: torch.Tensor) -> torch.Tensor:
        if index not in base.plain or leaf.numel() == 0:
            return leaf
        values = torch.randn(leaf.shape, generator=generator, dtype=torch.float32)
        rows = (*leaf.shape[:-1], 1) if leaf.dim() else ()
        tied = torch.rand(rows, generator=generator) < 0.25
        values = torch.where(tied, values.round(), values)
        values = values.masked_fill(torch.rand(leaf.shape, generator=generator) < 0.1, 0.0)
        scale = torch.exp(math.log(10.0) * (torch.rand(rows, generator=generator) * 4 - 2))
        return (values * scale).to(leaf.dtype)

    return Drawn(map_leaves(base.values, change), base.plain)
