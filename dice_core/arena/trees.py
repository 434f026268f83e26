"""Values that cross between processes: JSON trees whose tensors are bytes in a shared region.

This side needs no torch: it validates trees that an untrusted worker wrote and compares their form.

A tensor node is `{"k": "tensor", "dtype": …, "shape": […], "offset": …, "nbytes": …}`; other kinds are list, tuple,
dict, none, bool, int, float (hexadecimal text) and str. An input's node may carry `"draw": {"kind": …, "seed": …}`
instead of bytes in the region (with `alter`, `alter_seed` and `index` for harder values): both sides draw it.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

from dice_core.errors import ProtocolError

Node = dict[str, Any]

#: dtype name -> bytes per element, for every dtype that may cross.
ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
}
ALIGNMENT_BYTES = 256
#: Elements of one piece of a large output.
PIECE = 8192
_MAX_NODES = 20_000
_MAX_DEPTH = 40
_SCALARS = {"none", "bool", "int", "float", "str"}


def aligned(size: int) -> int:
    """`size` rounded up to the alignment of tensors in a region."""
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def check_tree(node: object, low: int, high: int) -> Node:
    """Validate a tree from an untrusted side; its tensors must lie in bytes `low`..`high` of the region.

    Raises:
        ProtocolError: not a tree, too large, or bytes out of place.
    """
    budget = [_MAX_NODES]
    _check(node, low, high, budget, 0)
    assert isinstance(node, dict)
    return node


def _check(node: object, low: int, high: int, budget: list[int], depth: int) -> None:
    budget[0] -= 1
    if budget[0] < 0 or depth > _MAX_DEPTH or not isinstance(node, dict):
        raise ProtocolError("output description is no tree, or too large")
    kind = node.get("k")
    if kind == "tensor":
        _check_tensor(node, low, high)
    elif kind in ("list", "tuple", "dict"):
        items = node.get("items")
        if not isinstance(items, list):
            raise ProtocolError(f"a {kind} without items")
        if kind == "dict":
            keys = node.get("keys")
            if not isinstance(keys, list) or len(keys) != len(items) or not all(isinstance(k, str) for k in keys):
                raise ProtocolError("a dict whose keys do not fit its items")
        for item in items:
            _check(item, low, high, budget, depth + 1)
    elif not isinstance(kind, str) or (kind not in _SCALARS and kind != "other"):
        raise ProtocolError("a node of unknown kind")


def _check_tensor(node: Node, low: int, high: int) -> None:
    shape, offset, nbytes = node.get("shape"), node.get("offset"), node.get("nbytes")
    if not isinstance(node.get("dtype"), str) or node["dtype"] not in ITEM_BYTES:
        raise ProtocolError("a tensor of unknown dtype")
    if not isinstance(shape, list) or len(shape) > 64 or not all(type(n) is int and 0 <= n < 1 << 40 for n in shape):
        raise ProtocolError("a tensor whose shape is no shape")
    if type(offset) is not int or type(nbytes) is not int:
        raise ProtocolError("a tensor without offset and nbytes")
    if nbytes != math.prod(shape) * ITEM_BYTES[node["dtype"]]:
        raise ProtocolError("a tensor whose bytes do not fit its shape")
    if offset < low or offset + nbytes > high or offset % ALIGNMENT_BYTES:
        raise ProtocolError("a tensor outside its region")


def tensors(node: Node) -> list[Node]:
    """Tensor nodes in order."""
    if node["k"] == "tensor":
        return [node]
    return [leaf for item in node.get("items", ()) for leaf in tensors(item)]


def total_bytes(node: Node) -> int:
    """Bytes that the tensors of a tree take in a region, alignment included."""
    return sum(aligned(leaf["nbytes"]) for leaf in tensors(node))


def cut(node: Node, numel: int) -> Node:
    """The tree of a value whose large tensors, of more than `numel` elements, are cut down to one row of so many."""
    if node["k"] == "tensor" and math.prod(node["shape"]) > numel:
        return {**node, "shape": [numel], "nbytes": numel * ITEM_BYTES[node["dtype"]]}
    return {**node, "items": [cut(item, numel) for item in node["items"]]} if "items" in node else node


def form(node: Node) -> object:
    """The tree without tensor contents: equal forms mean the same nesting, kinds and dictionary keys."""
    if node["k"] in ("list", "tuple"):
        return [node["k"], [form(item) for item in node["items"]]]
    if node["k"] == "dict":
        return ["dict", node["keys"], [form(item) for item in node["items"]]]
    return node["k"]


def describe(node: Node) -> str:
    """Short text for messages: `tuple(float32[2,3], int)`."""
    if node["k"] == "tensor":
        return f"{node['dtype']}{node['shape']}"
    if "items" in node:
        return f"{node['k']}({', '.join(describe(item) for item in node['items'][:8])})"
    if node["k"] == "other":
        return str(node.get("type", "other"))[:80]
    return str(node["k"])


def derive_seed(secret: str, *labels: object) -> int:
    """A 63-bit seed from the secret run seed and what it is for."""
    text = "\x1f".join([secret, *(str(label) for label in labels)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def commitment(secret: str) -> str:
    """sha256 of the secret, published before it is used."""
    return hashlib.sha256(secret.encode()).hexdigest()
