"""The mixture of a CuKe version: which of the rows that passed the funnel become members, declared in a TOML recipe.

    validation_share = 0.10        # share of families that go to validation
    seed = 0                       # decides between rows where not all have a place

    [thresholds]                   # least speedup by evidence, on top of the funnel's own
    claimed = 3.0
    measured = 2.0

    [balance]                      # largest share of all members
    single_operators = 0.6         # modules of one operator or none
    structures = 0.5               # augmented records

    [[sources]]                    # each row belongs to the first source that matches it
    match = "*concur*"             # pattern over the source file's uri
    weight = 3                     # members in proportion to the weights, as many as there are rows for
    cap = 5000                     # at most so many

All of it is optional; an empty recipe takes everything. The draw is by hash of seed and record id, so it does not
depend on the order of rows or on how fast they claim to be. What has no place is dropped with a reason, like all else.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_core.curation.authored import read_toml
from dice_core.curation.difficulty import level_of
from dice_core.curation.families import VALIDATION_SHARE
from dice_core.curation.operators import module_traits
from dice_core.errors import ContractError, SourceError, UsageError
from dice_core.files import sha256_bytes
from dice_core.records import Decision, canonical_json

if TYPE_CHECKING:
    from dice_core.curation.cuke import Kept

STEP = "cuke"


@dataclass(frozen=True)
class SourceShare:
    """How much of one source may be in the mixture."""

    match: str
    weight: float | None = None
    cap: int | None = None


@dataclass(frozen=True)
class Mixture:
    """A recipe as read."""

    validation_share: float = VALIDATION_SHARE
    seed: int = 0
    thresholds: Mapping[str, float] = field(default_factory=dict)  #: evidence -> least speedup
    balance: Mapping[str, float] = field(default_factory=dict)  #: `single_operators`, `structures` -> largest share
    sources: tuple[SourceShare, ...] = ()

    def as_text(self) -> dict[str, str]:
        """All values as text, as they enter ids, manifests and cards."""
        sources = [{"match": one.match, "weight": _text(one.weight), "cap": _text(one.cap)} for one in self.sources]
        return {
            "mixture.validation_share": _text(self.validation_share),
            "mixture.seed": str(self.seed),
            "mixture.thresholds": canonical_json({name: _text(value) for name, value in self.thresholds.items()}),
            "mixture.balance": canonical_json({name: _text(value) for name, value in self.balance.items()}),
            "mixture.sources": canonical_json(sources),
        }


def read_mixture(path: Path) -> Mixture:
    """Read and validate a recipe.

    Raises:
        UsageError: the file is not there.
        SourceError: it is not UTF-8 or not TOML.
        ContractError: a field is unknown or out of range; names file and field.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file (a recipe of the mixture)")
    data = read_toml(path)
    _known(path, "", data, ("validation_share", "seed", "thresholds", "balance", "sources"))
    thresholds, balance = data.get("thresholds", {}), data.get("balance", {})
    for name, table, names in (("thresholds", thresholds, ("claimed", "measured")),
                               ("balance", balance, ("single_operators", "structures"))):
        if not isinstance(table, dict):
            raise ContractError(f"{path}: field {name} must be a table")
        _known(path, f"{name}.", table, names)
    sources = data.get("sources", [])
    if not isinstance(sources, list) or not all(isinstance(one, dict) for one in sources):
        raise ContractError(f"{path}: field sources must be a list of tables ([[sources]])")
    for number, one in enumerate(sources):
        _known(path, f"sources[{number}].", one, ("match", "weight", "cap"))
        if not isinstance(one.get("match"), str) or not one["match"]:
            raise ContractError(f"{path}: field sources[{number}].match must be a pattern, got {one.get('match')!r}")
    return Mixture(
        validation_share=_number(path, "validation_share", data.get("validation_share", VALIDATION_SHARE), 0.0, 0.5),
        seed=int(_number(path, "seed", data.get("seed", 0), 0, 2**63, whole=True)),
        thresholds={name: _number(path, f"thresholds.{name}", value, 0.0, 1e9) for name, value in thresholds.items()},
        balance={name: _number(path, f"balance.{name}", value, 0.0, 1.0) for name, value in balance.items()},
        sources=tuple(_source(path, number, one) for number, one in enumerate(sources)),
    )


def mixture_from_text(config: Mapping[str, str]) -> Mixture:
    """The inverse of `as_text`, for a stored version; versions from before there were recipes have the default."""
    if "mixture.seed" not in config:
        return Mixture()
    sources = [SourceShare(one["match"], float(one["weight"]) if one["weight"] else None,
                           int(one["cap"]) if one["cap"] else None)
               for one in json.loads(config["mixture.sources"])]
    return Mixture(
        float(config["mixture.validation_share"]), int(config["mixture.seed"]),
        {name: float(value) for name, value in json.loads(config["mixture.thresholds"]).items()},
        {name: float(value) for name, value in json.loads(config["mixture.balance"]).items()}, tuple(sources))


def mix(kept: Sequence[Kept], mixture: Mixture, uris: Mapping[str, str]) -> tuple[list[Kept], list[Decision]]:
    """Choose the members.

    Args:
        kept: what passed the funnel; the order does not matter.
        mixture: the recipe.
        uris: source file id -> uri.

    Returns:
        The members, and a `drop` decision of the step `cuke` for each of the others: `mixture_threshold`,
        `source_cap`, `source_weight`, `balance_single_operators`, `balance_structures`.
    """
    draw = sorted(kept, key=lambda one: sha256_bytes(f"{mixture.seed}:{one.record.record_id}"))
    dropped: list[Decision] = []

    def keep(members: list[Kept], rule: str, reason: str, allowed: Callable[[Kept], bool]) -> list[Kept]:
        good = [one for one in members if allowed(one)]
        inside = {one.record.record_id for one in good}
        dropped.extend(Decision(one.record.record_id, STEP, rule, "drop", reason) for one in members
                       if one.record.record_id not in inside)
        return good

    draw = keep(draw, "mixture_threshold", "slower than the mixture asks for on this evidence",
                lambda one: _speedup(one) >= mixture.thresholds.get(one.evidence, 0.0))
    draw = _by_source(draw, mixture, uris, keep)
    before = -1
    while before != len(draw):  # one bound may break the other
        before = len(draw)
        for name, is_kind in _KINDS.items():
            if name in mixture.balance:
                draw = _bounded(draw, name, is_kind, mixture.balance[name], keep)
    return draw, sorted(dropped, key=lambda one: one.record_id)


_Keep = Callable[["list[Kept]", str, str, "Callable[[Kept], bool]"], "list[Kept]"]


def _by_source(draw: list[Kept], mixture: Mixture, uris: Mapping[str, str], keep: _Keep) -> list[Kept]:
    """Caps, then weights: the largest mixture in these proportions that needs no row twice."""
    place = {one.record.record_id: _place(uris.get(one.record.source_file_id, ""), mixture.sources) for one in draw}
    for number, share in enumerate(mixture.sources):
        if share.cap is not None:
            members = [one for one in draw if place[one.record.record_id] == number]
            first = {one.record.record_id for one in members[:share.cap]}
            draw = keep(draw, "source_cap", f"source {share.match!r} has its cap of {share.cap} members",
                        _inside(first, place, number))
    weighted = {number: share.weight for number, share in enumerate(mixture.sources) if share.weight is not None}
    held = {number: [one for one in draw if place[one.record.record_id] == number] for number in weighted}
    if present := {number: weight for number, weight in weighted.items() if held[number] and weight > 0}:
        unit = min(len(held[number]) / weight for number, weight in present.items())
        for number, weight in weighted.items():
            count = int(unit * weight + 1e-9)
            first = {one.record.record_id for one in held[number][:count]}
            reason = f"source {mixture.sources[number].match!r} has its {count} members by weight {weight:g}"
            draw = keep(draw, "source_weight", reason, _inside(first, place, number))
    return draw


def _inside(first: set[str], place: Mapping[str, int], number: int) -> Callable[[Kept], bool]:
    return lambda one: place[one.record.record_id] != number or one.record.record_id in first


def _bounded(draw: list[Kept], name: str, is_kind: Callable[[Kept], bool], share: float, keep: _Keep) -> list[Kept]:
    kind = [one for one in draw if is_kind(one)]
    others = len(draw) - len(kind)
    # k / (k + others) <= share; where all are of the kind, there is nothing to be balanced with.
    count = len(kind) if share >= 1 or not others else min(len(kind), int(others * share / (1 - share) + 1e-9))
    first = {one.record.record_id for one in kind[:count]}
    inside = {one.record.record_id for one in kind}
    reason = f"{name.replace('_', ' ')} are at most {share:g} of the members"
    return keep(draw, f"balance_{name}", reason,
                lambda one: one.record.record_id not in inside or one.record.record_id in first)


def _place(uri: str, sources: Sequence[SourceShare]) -> int:
    return next((number for number, one in enumerate(sources) if fnmatch.fnmatchcase(uri, one.match)), -1)


def _speedup(one: Kept) -> float:
    value = one.measurement.speedup_low if one.measurement else one.record.claimed_speedup
    return value if value is not None else 0.0


def _is_single(one: Kept) -> bool:
    try:
        return level_of(module_traits(one.record.pytorch_code)) <= 1
    except SourceError:
        return False


_KINDS: Mapping[str, Callable[[Kept], bool]] = {
    "single_operators": _is_single,
    "structures": lambda one: one.record.origin == "augmentation",
}


def _source(path: Path, number: int, one: Mapping[str, Any]) -> SourceShare:
    where = f"sources[{number}]"
    weight, cap = one.get("weight"), one.get("cap")
    return SourceShare(
        one["match"],
        None if weight is None else _number(path, f"{where}.weight", weight, 0.0, 1e9),
        None if cap is None else int(_number(path, f"{where}.cap", cap, 0, 2**53, whole=True)),
    )


def _number(path: Path, name: str, value: object, low: float, high: float, *, whole: bool = False) -> float:
    kind = "a whole number" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not low <= value <= high:
        raise ContractError(f"{path}: field {name} must be {kind} from {low:g} to {high:g}, got {value!r:.60}")
    return value


def _known(path: Path, prefix: str, table: Mapping[str, Any], names: Sequence[str]) -> None:
    if unknown := sorted(table.keys() - set(names)):
        shown = ", ".join(f"{prefix}{name}" for name in unknown)
        raise ContractError(f"{path}: field {shown} is not known; known: {', '.join(prefix + name for name in names)}")


def _text(value: float | None) -> str:
    return "" if value is None else repr(value)
