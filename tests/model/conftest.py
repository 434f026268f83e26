"""Tiny models and layouts for the tests of the mask rule and of decoding; everything in float64 on one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from transformers import Qwen3ForCausalLM

from dice_core.model import backbone
from dice_core.model.attention import dense_mask
from dice_core.model.noise import Noise
from dice_core.train.packing import Document, PackedRows, lay_out

VOCAB, MASK, PAD, STOP = 61, 60, 59, 58


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def architecture(block_size: int = 4, **changes: object) -> backbone.Architecture:
    values: dict[str, object] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "block_size": block_size,
        "mask_token_id": MASK,
        "eos_token_id": STOP,
        "pad_token_id": PAD,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,  # large, so that every leak shows
    }
    return backbone.Architecture(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def tiny() -> Callable[..., Qwen3ForCausalLM]:
    """Builds a random float64 model: tiny(block_size=4, **architecture fields)."""

    def make(block_size: int = 4, **changes: object) -> Qwen3ForCausalLM:
        return backbone.build(architecture(block_size, **changes), seed=1).double().eval()

    return make


@pytest.fixture
def document() -> Callable[..., Document]:
    """Builds a document of random tokens: document(prompt tokens, response tokens, seed)."""

    def make(prompt: int, response: int, seed: int = 0) -> Document:
        tokens = np.random.default_rng(seed).integers(0, STOP, prompt + response)
        return Document(f"doc{seed}", tokens, prompt)

    return make


def mask_where(document: Document, positions: list[int]) -> Noise:
    """Noise that masks exactly `positions`, each with weight 1."""
    masked = np.zeros(document.tokens.size, dtype=bool)
    masked[positions] = True
    return Noise(masked, masked.astype(float))


def rows_of(
    documents: list[Document], noises: list[list[Noise]], block_size: int = 4, row_multiple: int | None = None
) -> PackedRows:
    return lay_out(
        documents,
        noises,
        block_size=block_size,
        mask_id=MASK,
        pad_id=PAD,
        row_multiple=row_multiple or block_size,
    )


def logits(model: Qwen3ForCausalLM, rows: PackedRows) -> torch.Tensor:
    """Logits of all rows [rows, vocabulary] under the dense mask."""
    with torch.no_grad():
        hidden = backbone.hidden_states(model, rows.tokens[None], rows.ids.pos[None], mask=dense_mask(rows.ids))
        return model.lm_head(hidden[0])


def select(rows: PackedRows, doc: int, copy: int) -> torch.Tensor:
    """Boolean [rows]: rows of one copy of one document."""
    return (rows.ids.doc == doc) & (rows.ids.copy == copy)
