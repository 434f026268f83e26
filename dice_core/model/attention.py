"""The one attention mask rule of block diffusion, used by training and shared by every layout of rows.

A packed sequence is a list of rows. Each row knows its document, its position in that document, its block and
its copy: copy 0 is the clean stream, copies 1..C are noisy streams. The rule is the BD3-LM mask (Arriola et al.,
"Block Diffusion", arXiv:2503.09573) written over ids, so the order of rows in memory is free.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

#: Document id of padding rows.
PADDING_DOCUMENT = -1
#: Copy id of the clean stream.
CLEAN = 0
#: Name under which `block_attention` is registered with transformers.
ATTENTION = "dice_block_attention"
#: Query rows of a tile; measured best on the CPU at heads of 32 to 64.
TILE_ROWS = 256


@dataclass(frozen=True)
class RowIds:
    """Identity of every row of a packed sequence; four integer tensors of shape [rows].

    Attributes:
        doc: document of the row, >= 0, or `PADDING_DOCUMENT`.
        pos: position inside the document (RoPE position); a noisy row keeps that of the token it copies.
        blk: diffusion block of the position, `pos // block_size`.
        copy: 0 for the clean stream, 1..C for a noisy copy.
    """

    doc: torch.Tensor
    pos: torch.Tensor
    blk: torch.Tensor
    copy: torch.Tensor

    def __len__(self) -> int:
        return int(self.doc.numel())

    def to(self, device: torch.device) -> RowIds:
        """The same ids on another device."""
        return RowIds(*(t.to(device) for t in (self.doc, self.pos, self.blk, self.copy)))


def allow(queries: RowIds, keys: RowIds) -> torch.Tensor:
    """Which key rows each query row may attend to.

    Clean rows see the clean rows of their own and earlier blocks. Noisy rows see the clean rows of strictly
    earlier blocks and the noisy rows of their own block and copy. Nothing crosses documents, and no clean row
    ever sees a noisy one. Padding rows carry copy >= 1, so the same rule confines each to its own block and no
    row is left with nothing to attend to.

    Args:
        queries: ids of the query rows.
        keys: ids of the key rows.

    Returns:
        Boolean tensor [query rows, key rows]; True = may attend.
    """
    q_blk, q_copy = queries.blk[:, None], queries.copy[:, None]
    k_blk, k_copy = keys.blk[None, :], keys.copy[None, :]
    same_doc = queries.doc[:, None] == keys.doc[None, :]
    same_block = q_blk == k_blk
    to_clean = (k_copy == CLEAN) & ((k_blk < q_blk) | ((q_copy == CLEAN) & same_block))
    to_own_noise = (q_copy != CLEAN) & (k_copy == q_copy) & same_block
    return same_doc & (to_clean | to_own_noise)


def dense_mask(rows: RowIds) -> torch.Tensor:
    """The rule over one packed sequence as the 4-D boolean mask that transformers hands to SDPA unchanged.

    Returns:
        Boolean tensor [1, 1, rows, rows].
    """
    return allow(rows, rows)[None, None]


@dataclass(frozen=True)
class Tile:
    """A run of query rows and the only keys that any of them may see.

    Attributes:
        queries: the query rows.
        keys: [keys] indices of the key rows.
        mask: additive mask [1, 1, queries, keys], 0 or -inf.
    """

    queries: slice
    keys: torch.Tensor
    mask: torch.Tensor


def tiles(rows: RowIds, block_size: int, dtype: torch.dtype, tile_rows: int = TILE_ROWS) -> list[Tile]:
    """Cut a packed sequence into query tiles and find each tile's keys.

    Packed documents do not see each other and a block sees no later one, so most of the square of rows is empty;
    a dense mask makes SDPA compute all of it.

    Args:
        rows: ids of the sequence, laid out in whole blocks: each run of `block_size` rows is one block of one copy,
            so that one row speaks for its run.
        block_size: tokens of a diffusion block.
        dtype: type of the additive masks, that of the queries.
        tile_rows: query rows of a tile, rounded down to whole blocks.

    Returns:
        Tiles that cover all rows in order.
    """
    cells = RowIds(*(t[::block_size] for t in (rows.doc, rows.pos, rows.blk, rows.copy)))
    within = torch.arange(block_size, device=rows.doc.device)
    step = max(1, tile_rows // block_size)
    out: list[Tile] = []
    for begin in range(0, len(cells), step):
        part = RowIds(*(t[begin : begin + step] for t in (cells.doc, cells.pos, cells.blk, cells.copy)))
        allowed = allow(part, cells)
        seen = torch.nonzero(allowed.any(0))[:, 0]
        fine = allowed[:, seen].repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)
        mask = torch.zeros(fine.shape, dtype=dtype, device=fine.device).masked_fill_(~fine, float("-inf"))
        keys = (seen[:, None] * block_size + within).reshape(-1)
        queries = slice(begin * block_size, (begin + len(part)) * block_size)
        out.append(Tile(queries=queries, keys=keys, mask=mask[None, None]))
    return out


def block_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    block_tiles: list[Tile] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention for transformers: tile by tile where tiles are given, else SDPA under the 4-D mask.

    Args:
        module: the calling attention layer.
        query: [batch, heads, rows, head_dim].
        key: [batch, kv heads, key rows, head_dim].
        value: as `key`.
        attention_mask: 4-D mask, or None where `block_tiles` is given.
        scaling: factor on the scores.
        block_tiles: see `tiles`; the result equals SDPA under `dense_mask`.
        kwargs: passed on to transformers' SDPA.

    Returns:
        [batch, rows, heads, head_dim] and None for the probabilities.
    """
    if block_tiles is None:
        out = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return cast(tuple[torch.Tensor, None], out)
    groups = query.shape[1] // key.shape[1]
    parts: list[torch.Tensor] = []
    # On CUDA the fused kernels sum their gradients in no fixed order, and a resumed run would differ in its last bits.
    with sdpa_kernel(SDPBackend.MATH) if query.is_cuda else contextlib.nullcontext():
        for tile in block_tiles:
            k = key.index_select(2, tile.keys).repeat_interleave(groups, dim=1)
            v = value.index_select(2, tile.keys).repeat_interleave(groups, dim=1)
            q = query[:, :, tile.queries]
            parts.append(scaled_dot_product_attention(q, k, v, attn_mask=tile.mask, scale=scaling))
    return torch.cat(parts, dim=2).transpose(1, 2), None


AttentionInterface.register(ATTENTION, block_attention)
