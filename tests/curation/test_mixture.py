from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import curated
import pytest
from curation_rows import raw_row, training_record
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_core.curation.cuke import Kept
from dice_core.curation.mixture import Mixture, SourceShare, mix, mixture_from_text, read_mixture
from dice_core.curation.pipeline import CurationConfig
from dice_core.errors import ContractError, DiceError, SourceError, UsageError
from dice_core.records import TrainingRecord

MakeRecord = Callable[..., TrainingRecord]

URIS = {"src_a": "hub://concur/rows", "src_b": "file:///mine.jsonl", "src_s": "structures/ by offline library"}
FULL = """
validation_share = 0.2
seed = 7
[thresholds]
claimed = 3.0
[balance]
single_operators = 0.6
structures = 0.5
[[sources]]
match = "*concur*"
weight = 3
[[sources]]
match = "*"
weight = 1.5
cap = 100
"""


def kept(number: int, source: str = "src_a", **changes: Any) -> Kept:
    origin = "augmentation" if source == "src_s" else "source"
    return Kept(training_record(number, source_file_id=source, row_locator=f"row {number}", origin=origin, **changes),
                "claimed")


def rules(found: tuple[list[Kept], list[Any]]) -> Counter[str]:
    return Counter(one.rule for one in found[1])


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_default_recipe_takes_everything(root: Path) -> None:
    mixture = read_mixture(root / "datasets" / "cuke" / "recipe.toml")
    assert mixture == Mixture()
    everything = [kept(number) for number in range(9)]
    members, dropped = mix(everything, mixture, URIS)
    assert (len(members), dropped) == (9, [])


def test_a_recipe_is_read_and_survives_as_text(tmp_path: Path) -> None:
    mixture = read_mixture(write(tmp_path / "r.toml", FULL))
    assert mixture.sources == (SourceShare("*concur*", 3), SourceShare("*", 1.5, 100))
    assert mixture.thresholds == {"claimed": 3.0}
    assert mixture_from_text(mixture.as_text()) == mixture
    assert mixture_from_text({}) == Mixture()
    assert all(isinstance(value, str) for value in mixture.as_text().values())


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("speed = 1", ContractError, "field speed is not known"),
        ("[thresholds]\nclaims = 1", ContractError, "field thresholds.claims is not known"),
        ("validation_share = 0.9", ContractError, "field validation_share must be a number from 0 to 0.5"),
        ("validation_share = nan", ContractError, "field validation_share"),
        ("validation_share = true", ContractError, "field validation_share"),
        ("seed = 1.5", ContractError, "field seed must be a whole number"),
        ("balance = 1", ContractError, "field balance must be a table"),
        ("[balance]\nstructures = -0.1", ContractError, "field balance.structures"),
        ("sources = 1", ContractError, "must be a list of tables"),
        ("[[sources]]\nweight = 1", ContractError, "sources\\[0\\].match must be a pattern"),
        ("[[sources]]\nmatch = '*'\ncap = -1", ContractError, "sources\\[0\\].cap must be a whole number"),
        ("[[sources]]\nmatch = '*'\nweight = 'x'", ContractError, "sources\\[0\\].weight must be a number"),
        ("= broken", SourceError, "not TOML"),
    ],
)
def test_bad_recipes_are_refused(tmp_path: Path, text: str, error: type[DiceError], says: str) -> None:
    path = write(tmp_path / "bad.toml", text)
    with pytest.raises(error, match=says) as found:
        read_mixture(path)
    assert str(path) in str(found.value)
    with pytest.raises(UsageError, match=r"absent\.toml"):
        read_mixture(tmp_path / "absent.toml")


def test_caps_and_weights() -> None:
    everything = [kept(n, "src_a") for n in range(40)] + [kept(n, "src_b") for n in range(40, 50)]
    capped = mix(everything, Mixture(sources=(SourceShare("*concur*", cap=15),)), URIS)
    assert Counter(one.record.source_file_id for one in capped[0]) == {"src_a": 15, "src_b": 10}
    assert rules(capped) == {"source_cap": 25}
    weighted = mix(everything, Mixture(sources=(SourceShare("*concur*", 3), SourceShare("*", 1))), URIS)
    assert Counter(one.record.source_file_id for one in weighted[0]) == {"src_a": 30, "src_b": 10}
    both = Mixture(sources=(SourceShare("*concur*", 3, 6), SourceShare("*mine*", 1)))
    assert Counter(one.record.source_file_id for one in mix(everything, both, URIS)[0]) == {"src_a": 6, "src_b": 2}
    none = Mixture(sources=(SourceShare("*concur*", 0), SourceShare("*", 1)))
    assert Counter(one.record.source_file_id for one in mix(everything, none, URIS)[0]) == {"src_b": 10}


def test_thresholds_ask_more_of_one_evidence() -> None:
    rows = [kept(0, claimed_speedup=2.5), kept(1, claimed_speedup=3.5)]
    rows.append(replace(kept(2, claimed_speedup=2.5), evidence="measured"))
    found = mix(rows, Mixture(thresholds={"claimed": 3.0}), URIS)
    assert {one.record.uuid for one in found[0]} == {"u1", "u2"}
    assert rules(found) == {"mixture_threshold": 1}


def test_balance_of_structures_and_single_operators() -> None:
    everything = [kept(n, "src_a") for n in range(10)] + [kept(n, "src_s") for n in range(10, 40)]
    found = mix(everything, Mixture(balance={"structures": 0.25}), URIS)
    assert Counter(one.record.origin for one in found[0]) == {"source": 10, "augmentation": 3}
    assert rules(found) == {"balance_structures": 27}
    # Of the rows' modules each has two operators (relu, times two); these have one.
    single = [kept(n, pytorch_code=training_record(n).pytorch_code.replace(" * 2", "")) for n in range(100, 130)]
    found = mix([*everything[:10], *single], Mixture(balance={"single_operators": 0.5}), URIS)
    assert (len(found[0]), rules(found)) == (20, {"balance_single_operators": 20})
    alone = mix(single, Mixture(balance={"single_operators": 0.5}), URIS)
    assert len(alone[0]) == len(single)


@given(st.lists(st.tuples(st.sampled_from(["src_a", "src_b", "src_s"]), st.floats(0.5, 9)), max_size=40),
       st.randoms(use_true_random=False), st.floats(0, 1), st.floats(0, 1), st.integers(0, 20), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_nothing_is_lost_and_the_order_does_not_matter(
    rows: list[tuple[str, float]], chance: random.Random, singles: float, structures: float, cap: int, seed: int
) -> None:
    everything = [kept(n, source, claimed_speedup=speed) for n, (source, speed) in enumerate(rows)]
    mixture = Mixture(seed=seed, thresholds={"claimed": 2.0},
                      balance={"single_operators": singles, "structures": structures},
                      sources=(SourceShare("*concur*", 2.0, cap), SourceShare("*mine*", 1.0)))
    members, dropped = mix(everything, mixture, URIS)
    ids = [one.record.record_id for one in members]
    assert sorted(ids + [one.record_id for one in dropped]) == sorted(one.record.record_id for one in everything)
    assert all(one.step == "cuke" and one.verdict == "drop" and one.reason for one in dropped)
    chance.shuffle(everything)
    again = mix(everything, mixture, URIS)
    assert [one.record.record_id for one in again[0]] == ids
    assert again[1] == dropped
    share = sum(one.record.origin == "augmentation" for one in members)
    assert share == len(members) or share <= structures * len(members) + 1e-9


def test_the_mixture_is_part_of_the_version_and_its_funnel(tmp_path: Path) -> None:
    rows = curated.write_rows(tmp_path / "rows.jsonl", [raw_row(number) for number in range(12)])
    plain = curated.curate(tmp_path / "a", [rows]).version
    same = curated.curate(tmp_path / "b", [rows], CurationConfig(mixture=Mixture())).version
    seeded = curated.curate(tmp_path / "c", [rows], CurationConfig(mixture=Mixture(seed=1))).version
    capped = CurationConfig(mixture=Mixture(sources=(SourceShare("*rows*", cap=5),)))
    few = curated.curate(tmp_path / "d", [rows], capped).version
    assert plain.version_id == same.version_id
    assert len({plain.version_id, seeded.version_id, few.version_id}) == 3
    assert few.funnel["cuke"] == {"in": 12, "kept": 5, "out:source_cap": 7}
    manifest = (tmp_path / "d" / "datasets" / "cuke" / few.version_id / "manifest.json").read_text("utf-8")
    assert "mixture.sources" in manifest
    empty = CurationConfig(mixture=Mixture(thresholds={"claimed": 100.0}))
    with pytest.raises(UsageError):
        curated.curate(tmp_path / "e", [rows], empty)
