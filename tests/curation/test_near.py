"""Near-duplicates never straddle the split."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import combinations

import pytest
from curation_rows import OPS, training_record
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_core.curation.families import families, split
from dice_core.curation.near import NEAR, _shingles, canonical, near_pairs
from dice_core.records import TrainingRecord

CLASS = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.{layer} = nn.{kind}(width, {size})
        self.scale = {scale}

    def forward(self, {x}):
        {y} = self.{layer}({x})
        {y} = torch.{op}({y}) * self.scale
        return torch.{second}({y}, dim=-1)


def get_inputs():
    return [torch.rand({size}, 16)]


def get_init_inputs():
    return [16]
"""
WORDS = st.text("abcdefgh", min_size=1, max_size=6).filter(lambda word: word not in ("def", "as", "if"))
SPELLING = st.fixed_dictionaries({"layer": WORDS.map(lambda w: f"l_{w}"), "x": WORDS.map(lambda w: f"x_{w}"),
                                  "y": WORDS.map(lambda w: f"y_{w}"), "size": st.integers(1, 4096),
                                  "scale": st.floats(0.1, 9).map(repr)})


def spelt(spelling: dict[str, object], op: str, kind: str, second: str) -> str:
    return CLASS.format(op=op, kind=kind, second=second, **spelling)


@given(st.lists(st.tuples(SPELLING, st.sampled_from(OPS), st.sampled_from(["Linear", "Embedding", "Conv1d"]),
                          st.sampled_from(["sum", "amax", "softmax", "cumsum"])), min_size=2, max_size=30),
       SPELLING, st.booleans())
@settings(deadline=None, max_examples=60)
def test_a_module_in_another_spelling_is_on_the_same_side(
    given_rows: list[tuple[dict[str, object], str, str, str]], other: dict[str, object], comment: bool
) -> None:
    """Each module comes twice: other names of layers and variables, other sizes, other comments, another kernel."""
    records = []
    for number, (spelling, *work) in enumerate(given_rows):
        for copy, text in enumerate((spelt(spelling, *work), spelt(other, *work))):
            if comment:
                text = f"# {number}\n" + text.replace("    def forward", "    # said\n\n    def forward")
            records.append(training_record(number, row_locator=f"{number}/{copy}", problem_name=f"p{number}{copy}",
                                           pytorch_code=text, kernel_code=f"kernel {number} {copy}"))
    parts = split(records, 0.5)
    family = families(records)
    for one, two in zip(records[::2], records[1::2], strict=True):
        assert family[one.record_id] == family[two.record_id]
        assert parts[one.record_id] == parts[two.record_id]


@given(st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=30), max_size=25))
@settings(deadline=None, max_examples=150)
def test_the_join_misses_no_pair_and_invents_none(words: list[list[str]]) -> None:
    modules = {f"m{n}": " ".join(text) for n, text in enumerate(words)}
    shingles = {name: _shingles(text) for name, text in modules.items()}
    naive = {frozenset(pair) for pair in combinations(modules, 2)
             if len(shingles[pair[0]] & shingles[pair[1]]) >= NEAR * len(shingles[pair[0]] | shingles[pair[1]])}
    found = list(near_pairs(modules))
    assert {frozenset(pair) for pair in found} == naive
    assert len(found) == len(naive)


def test_one_more_statement_in_a_large_module_is_near_and_another_operator_in_a_small_one_is_not() -> None:
    lines = "".join(f"        x = torch.{op}(x) + {n} * x\n" for n, op in enumerate(OPS * 4))
    large = f"class Model:\n    def forward(self, x):\n{lines}        return x\n"
    more = large.replace("        return x", "        x = x - 1\n        return x")
    assert list(near_pairs({"a": canonical(large), "b": canonical(more)})) == [("a", "b")]
    small = {op: canonical(training_record(n).pytorch_code) for n, op in enumerate(OPS)}
    assert list(near_pairs(small)) == []


def test_no_near_pair_straddles_the_split_of_random_edits(make_record: Callable[..., TrainingRecord]) -> None:
    rng = random.Random(5)
    records = []
    for number in range(60):
        ops = rng.choices(OPS, k=30)
        base = [f"        x = torch.{op}(x, {rng.randrange(9)})" for op in ops]
        for copy in range(3):
            lines = list(base)
            if copy:
                lines.insert(rng.randrange(30), "        x = x.contiguous()")
            text = "class Model:\n    def forward(self, x):\n" + "\n".join(lines) + "\n        return x\n"
            records.append(make_record(number, row_locator=f"{number}/{copy}", problem_name="", pytorch_code=text,
                                       kernel_code=f"{number} {copy}"))
    parts = split(records, 0.3)
    assert set(parts.values()) == {"train", "validation"}
    pairs = list(near_pairs({one.record_id: canonical(one.pytorch_code) for one in records}))
    assert len(pairs) >= 120
    assert all(parts[one] == parts[two] for one, two in pairs)


def test_the_same_kernel_for_two_modules_is_one_family(make_record: Callable[..., TrainingRecord]) -> None:
    one, two = make_record(0), make_record(1, kernel_code=make_record(0).kernel_code)
    assert len(set(families([one, two]).values())) == 1


@pytest.mark.parametrize("source", ["", "def (", "x = 1\0", "class Model: pass", "é" * 10])
def test_any_text_has_a_canonical_form(source: str) -> None:
    assert canonical(canonical(source)) == canonical(source)
    assert list(near_pairs({"a": canonical(source), "b": canonical(source)})) == [("a", "b")]


def test_methods_and_inherited_attributes_keep_their_names() -> None:
    text = "class Model:\n    def __init__(self):\n        self.fc = 1\n"
    text += "    def go(self):\n        return self.fc, self.training\n"
    text += "    def forward(self):\n        return self.go()\n"
    found = canonical(text)
    assert re.search(r"self\.attribute0", found) and "self.training" in found and "self.go()" in found
    assert "fc" not in found


@pytest.mark.parametrize("terms", [300, 600, 900, 1500, 3000])
def test_deep_nesting_is_no_crash(terms: int) -> None:
    text = canonical("class Model:\n    def forward(self, x):\n        return " + "+".join(["x"] * terms) + "\n")
    assert list(near_pairs({"a": text, "b": text})) == [("a", "b")]
