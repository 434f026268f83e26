"""Merkle root over the ids of a version's members: one hash that changes when any member does.

The construction is that of RFC 6962, section 2.1: SHA-256, a leaf is `H(0x00 || data)`, a node is
`H(0x01 || left || right)`, the left part of n leaves holds the largest power of two below n, and the root of nothing is
`H("")`. The prefixes keep a leaf from passing as a node.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable


def merkle_root(members: Iterable[str]) -> str:
    """Hex root over member ids, sorted first so that their order does not matter.

    Raises:
        ValueError: a member is there twice.
    """
    ids = sorted(members)
    for first, second in itertools.pairwise(ids):
        if first == second:
            raise ValueError(f"member {first} is there twice")
    return _root([hashlib.sha256(b"\x00" + identity.encode()).digest() for identity in ids]).hex()


def _root(leaves: list[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(b"\x01" + _root(leaves[:split]) + _root(leaves[split:])).digest()
