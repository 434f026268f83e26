"""Named training recipes. A recipe says everything that decides the weights, apart from the documents."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from dice_core.errors import UsageError
from dice_core.files import sha256_bytes
from dice_core.model.noise import Sampler
from dice_core.model.prompts import PromptForm
from dice_core.records import canonical_json

Schedule = Literal["constant", "cosine"]


@dataclass(frozen=True)
class Recipe:
    """Supervised fine-tuning of a new model.

    Attributes:
        name: name for people.
        prompt_form: which generation prompt the documents are written with.
        vocab_size: upper bound of the tokenizer trained on the documents.
        hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim: shape
            of the network.
        rope_theta: base of the rotary position encoding.
        initializer_range: standard deviation of the initial weights.
        block_size: tokens of a diffusion block.
        sampler: noise sampler.
        copies: noisy copies of every document in a sequence.
        row_budget: a document that needs more rows is dropped, whole, and reported.
        pack_rows: sequences are filled up to this many rows; a longer document travels alone.
        row_multiple: sequences are padded to a multiple of this many rows.
        sequences_per_step: packed sequences of one optimiser step.
        steps: optimiser steps.
        learning_rate: peak learning rate of AdamW.
        warmup_steps: steps of linear warm-up.
        schedule: `constant`, or `cosine` down to a tenth of the peak.
        weight_decay: on matrices only.
        beta2: second moment's decay; the first is 0.9.
        clip_norm: largest gradient norm.
        checkpoint_every: steps between checkpoints.
        seed: of weights, noise and order.
    """

    name: str
    prompt_form: PromptForm
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float
    initializer_range: float
    block_size: int
    sampler: Sampler
    copies: int
    row_budget: int
    pack_rows: int
    row_multiple: int
    sequences_per_step: int
    steps: int
    learning_rate: float
    warmup_steps: int
    schedule: Schedule
    weight_decay: float
    beta2: float
    clip_norm: float
    checkpoint_every: int
    seed: int = 0

    def as_params(self) -> dict[str, str]:
        """Every field as text, for logs and digests; floats in their shortest exact form."""
        return {field.name: str(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @property
    def digest(self) -> str:
        """Hex sha256 over all fields but the name."""
        params: dict[str, Any] = self.as_params()
        del params["name"]
        return sha256_bytes(canonical_json(params))


#: Seconds per epoch on two cores. Few wide heads keep CPU attention cheap; the large initial weights and the short
#: RoPE period let attention to neighbouring tokens form within the few steps there are.
TINY = Recipe(
    name="tiny",
    prompt_form="short",
    vocab_size=2048,
    hidden_size=192,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=32,
    rope_theta=1000.0,
    initializer_range=0.1,
    block_size=4,
    sampler="k_uniform",
    copies=1,
    row_budget=6144,
    pack_rows=1024,
    row_multiple=64,
    sequences_per_step=1,
    steps=120,
    learning_rate=6e-3,
    warmup_steps=10,
    schedule="cosine",
    weight_decay=0.0,
    beta2=0.95,
    clip_norm=1.0,
    checkpoint_every=40,
)

#: A few seconds: shows that the chain runs, teaches nothing.
SMOKE = dataclasses.replace(TINY, name="smoke", hidden_size=64, steps=6, warmup_steps=2, checkpoint_every=2)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (TINY, SMOKE)}


def recipe_named(name: str) -> Recipe:
    """The recipe called `name`.

    Raises:
        UsageError: there is none; the message lists those there are.
    """
    try:
        return RECIPES[name]
    except KeyError:
        raise UsageError(f"unknown recipe {name!r}; known: {', '.join(sorted(RECIPES))}") from None
