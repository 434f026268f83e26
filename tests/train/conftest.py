"""A recipe that trains in seconds, on one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dice_core.train.packing import TextPair
from dice_core.train.recipes import TINY, Recipe


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recipe(**changes: object) -> Recipe:
    small: dict[str, object] = {
        "name": "test",
        "vocab_size": 280,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "row_budget": 512,
        "pack_rows": 128,
        "row_multiple": 32,
        "sequences_per_step": 2,
        "steps": 8,
        "warmup_steps": 2,
        "checkpoint_every": 3,
    }
    values = {field: getattr(TINY, field) for field in TINY.__dataclass_fields__}
    return Recipe(**{**values, **small, **changes})


WORDS = ["scale", "shift", "relu", "tanh", "sigmoid", "clamp", "square", "absolute"]
PAIRS = [
    TextPair(f"doc{i}", f"write {word}", f"def {word}(x):\n    return torch.{word}(x) * {i}.5\n")
    for i, word in enumerate(WORDS)
]
