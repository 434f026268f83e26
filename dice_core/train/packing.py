"""From text pairs to packed rows: encoding, the row budget, greedy packing and the layout of one sequence.

Layout of a sequence: the clean rows [prompt | response] of every document, then the noisy copies of the blocks that
hold response tokens. The prompt is never copied; the block where prompt and response meet is, with its prompt
tokens shown, because that is what decoding sees. Block 0 starts at each document's first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from dice_core.model.attention import CLEAN, PADDING_DOCUMENT, RowIds
from dice_core.model.noise import Noise
from dice_core.model.prompts import chat_prompt_ids, response_ids
from dice_core.model.tokenizer import CodeTokenizer

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TextPair:
    """One training example as text; `document_id` must be unique and stable, since the noise is seeded by it."""

    document_id: str
    prompt: str
    response: str


@dataclass(frozen=True)
class Document:
    """One tokenised example, padded to whole blocks.

    Attributes:
        document_id: stable name.
        tokens: [n] ids of prompt, response, its end mark and tail pads; n is a multiple of the block size.
        prompt_tokens: how many of them are the prompt; all others are supervised.
    """

    document_id: str
    tokens: IntArray
    prompt_tokens: int

    @property
    def maskable(self) -> npt.NDArray[np.bool_]:
        """[n] True for supervised tokens."""
        return np.arange(self.tokens.size) >= self.prompt_tokens

    @property
    def supervised(self) -> int:
        """Number of supervised tokens, masked or not."""
        return int(self.tokens.size - self.prompt_tokens)


@dataclass(frozen=True)
class DroppedDocument:
    """A document that does not fit the row budget. It is left out whole, never cut."""

    document_id: str
    tokens: int
    rows: int
    row_budget: int


@dataclass(frozen=True)
class PackedRows:
    """One packed sequence.

    Attributes:
        ids: doc, pos, blk and copy of every row.
        tokens: [rows] input ids, MASK where noise put it.
        targets: [rows] the true id; meaningful where `weights` > 0.
        weights: [rows] weight of the row's cross-entropy, float64.
        supervised: supervised tokens of the sequence (the loss divisor counts these, masked or not).
        clean_tokens: prompt and response tokens counted once, without padding rows.
    """

    ids: RowIds
    tokens: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    supervised: int
    clean_tokens: int


def encode_pair(pair: TextPair, tokenizer: CodeTokenizer, block_size: int) -> Document:
    """Tokenise a pair in the chat template and fill its last block with supervised `<|endoftext|>`."""
    prompt = chat_prompt_ids(tokenizer, pair.prompt)
    tokens = prompt + response_ids(tokenizer, pair.response)
    tokens += [tokenizer.end_of_text_id] * (-len(tokens) % block_size)
    return Document(pair.document_id, np.asarray(tokens, dtype=np.int64), len(prompt))


def document_rows(document: Document, block_size: int, copies: int) -> int:
    """Rows a document takes: its clean tokens plus every copy of the blocks that hold supervised tokens."""
    n = int(document.tokens.size)
    first = document.prompt_tokens // block_size * block_size
    return n + copies * (n - first)


def split_by_budget(
    documents: Sequence[Document], block_size: int, copies: int, row_budget: int
) -> tuple[list[Document], list[DroppedDocument]]:
    """Separate the documents that fit the row budget from those that do not."""
    kept: list[Document] = []
    dropped: list[DroppedDocument] = []
    for document in documents:
        rows = document_rows(document, block_size, copies)
        if rows <= row_budget:
            kept.append(document)
        else:
            dropped.append(DroppedDocument(document.document_id, int(document.tokens.size), rows, row_budget))
    return kept, dropped


def pack(rows: Sequence[int], pack_rows: int) -> list[list[int]]:
    """Best-fit decreasing: longest first, each into the fullest sequence that still has room.

    Args:
        rows: rows of each document.
        pack_rows: rows up to which a sequence is filled; a longer document gets a sequence of its own.

    Returns:
        Indices into `rows`, one list per sequence; the same input gives the same packing.
    """
    packs: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(rows)), key=lambda i: (-rows[i], i)):
        fitting = [p for p, free in enumerate(room) if free >= rows[index]]
        if fitting:
            best = min(fitting, key=lambda p: (room[p], p))
            packs[best].append(index)
            room[best] -= rows[index]
        else:
            packs.append([index])
            room.append(pack_rows - rows[index])
    return packs


def lay_out(
    documents: Sequence[Document],
    noises: Sequence[Sequence[Noise]],
    *,
    block_size: int,
    mask_id: int,
    pad_id: int,
    row_multiple: int,
) -> PackedRows:
    """Build the rows of one packed sequence.

    Args:
        documents: the documents of the sequence.
        noises: for each document its noisy copies, each over all of the document's tokens.
        block_size: tokens of a diffusion block.
        mask_id: id of MASK.
        pad_id: id shown in padding rows.
        row_multiple: the sequence is filled with padding rows up to a multiple of this, itself a multiple of the
            block size; the row budget itself gives every sequence the same shape.

    Returns:
        The rows, clean rows of all documents first.
    """
    if row_multiple % block_size:
        raise ValueError(f"row_multiple {row_multiple} is not a multiple of the block size {block_size}")
    clean: list[IntArray] = []
    noisy: list[IntArray] = []
    weights: list[npt.NDArray[np.float64]] = []
    for number, (document, copies) in enumerate(zip(documents, noises, strict=True)):
        n = document.tokens.size
        position = np.arange(n)
        clean.append(_columns(document.tokens, number, position, block_size, CLEAN, document.tokens))
        first = document.prompt_tokens // block_size * block_size
        for copy, noise in enumerate(copies, start=1):
            shown = np.where(noise.masked, mask_id, document.tokens)[first:]
            columns = _columns(shown, number, position[first:], block_size, copy, document.tokens[first:])
            noisy.append(columns)
            weights.append(noise.weight[first:] / len(copies))
    body = np.concatenate(clean + noisy, axis=1)
    clean_rows = sum(c.shape[1] for c in clean)
    row_weights = np.concatenate([np.zeros(clean_rows), *weights])
    padding = -body.shape[1] % row_multiple
    if padding:
        filler = np.full(padding, pad_id, dtype=np.int64)
        columns = _columns(filler, PADDING_DOCUMENT, np.arange(padding), block_size, CLEAN + 1, filler)
        body = np.concatenate([body, columns], axis=1)
        row_weights = np.concatenate([row_weights, np.zeros(padding)])
    tokens, doc, pos, blk, copy_ids, targets = torch.from_numpy(body)
    return PackedRows(
        ids=RowIds(doc=doc, pos=pos, blk=blk, copy=copy_ids),
        tokens=tokens,
        targets=targets,
        weights=torch.from_numpy(row_weights),
        supervised=sum(document.supervised for document in documents),
        clean_tokens=clean_rows,
    )


def _columns(
    tokens: IntArray, document: int, position: IntArray, block_size: int, copy: int, targets: IntArray
) -> IntArray:
    """Six columns of a run of rows, stacked [6, rows]: token, doc, pos, blk, copy, target."""
    same = np.ones(tokens.size, dtype=np.int64)
    return np.stack([tokens, same * document, position, position // block_size, same * copy, targets])
