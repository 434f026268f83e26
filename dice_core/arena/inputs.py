"""Tensors in and out of shared regions. Runs inside children (needs torch)."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import torch

from dice_core.arena.leafvalues import altered, drawn
from dice_core.arena.trees import ITEM_BYTES, Node, aligned

_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_BYTES}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
#: Bytes that are compared at once, so that a comparison takes no memory to speak of.
_CHUNK_BYTES = 128 << 20


class UnsupportedValue(Exception):
    """A value that cannot cross between processes."""


def as_bytes(region: mmap.mmap) -> torch.Tensor:
    """A region as a uint8 tensor that shares its memory."""
    return torch.frombuffer(region, dtype=torch.uint8)


def view_of(buffer: torch.Tensor, node: Node) -> torch.Tensor:
    """The tensor of a node as a view of the region."""
    raw = buffer[node["offset"] : node["offset"] + node["nbytes"]]
    return raw.view(_DTYPES[node["dtype"]]).view(node["shape"])


def source_of(node: Node, buffer: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The values of a tensor node: drawn on `device`, or a view of the region."""
    if "draw" not in node:
        return view_of(buffer, node)
    told = node["draw"]
    leaf = drawn(node["shape"], _DTYPES[node["dtype"]], told["kind"], told["seed"], device)
    return altered(leaf, told["alter"], told["alter_seed"], told["index"]) if "alter" in told else leaf


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
        source = source_of(node, buffer, device)
        return source.clone() if device.type == "cpu" and "draw" not in node else source.to(device)
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


def cut(value: Any, starts: list[list[int]], length: int) -> Any:
    """`value` with pieces of `length` elements in place of each tensor for which there are starts, in one row."""

    def pieces(index: int, leaf: torch.Tensor) -> torch.Tensor:
        if index >= len(starts) or not starts[index]:
            return leaf
        flat = leaf.detach().reshape(-1)
        return torch.cat([flat[start : start + length] for start in starts[index]])

    return map_leaves(value, pieces)


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes (NaN equals itself); compared on the device of `one`, in pieces."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    ours, theirs = (leaf.detach().contiguous().view(-1).view(torch.uint8) for leaf in (one, other))
    return all(
        torch.equal(piece, theirs[start : start + _CHUNK_BYTES].to(piece.device))
        for start in range(0, ours.numel(), _CHUNK_BYTES)
        for piece in (ours[start : start + _CHUNK_BYTES],)
    )
