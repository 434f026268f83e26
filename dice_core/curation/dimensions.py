"""The sizes a structure is instantiated at: sets that its file lists, and sets drawn from choices under constraints.

A draw is a ranking: all sets that the constraints allow are ordered by a hash of seed, structure and sizes, and the
first ones are taken. So the same seed gives the same sets on every machine, a larger count begins with the smaller
one's sets, and a new choice in the file does not move the sets that were allowed before against each other.
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dice_core.errors import ContractError
from dice_core.files import sha256_bytes

#: Fewer than this many dimension sets is an example, not an augmentation.
MINIMUM_DIMS = 3
#: A space with more combinations than this before its constraints is refused: every one of them is looked at.
MOST_COMBINATIONS = 20_000

Sizes = Mapping[str, int]

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@dataclass(frozen=True)
class DimensionSpace:
    """The sets of sizes that the choices and constraints of a structure's `sample` table allow."""

    allowed: tuple[Sizes, ...]

    def draw(self, name: str, count: int, seed: int, without: tuple[Sizes, ...] = ()) -> list[Sizes]:
        """The first `count` allowed sets in the order that `seed` gives structure `name`; fewer where there are fewer.

        Sets in `without` (those that the file lists) are passed over.
        """
        left = [sizes for sizes in self.allowed if sizes not in without]
        return sorted(left, key=lambda sizes: _rank(name, seed, sizes))[:count]


def listed_dims(path: Path, value: Any) -> tuple[dict[str, int], ...]:
    """Check and return the `dims` list of a structure file.

    Raises:
        ContractError: names file and field.
    """
    where = f"{path}: field dims"
    if not isinstance(value, list) or len(value) < MINIMUM_DIMS:
        raise ContractError(f"{where} must be a list of at least {MINIMUM_DIMS} tables")
    for number, table in enumerate(value):
        if not isinstance(table, dict) or not table:
            raise ContractError(f"{where}[{number}] must be a table of sizes, got {table!r:.60}")
        if table.keys() != value[0].keys():
            raise ContractError(f"{where}[{number}] has {', '.join(table)}, but [0] has {', '.join(value[0])}")
        for key, size in table.items():
            if _NAME.fullmatch(key) is None:
                raise ContractError(f"{where}[{number}].{key}: a dimension is named in capitals, like HEAD_DIM")
            if not _is_size(size):
                raise ContractError(f"{where}[{number}].{key} must be a whole number above 0, got {size!r}")
    for (i, first), (j, second) in itertools.combinations(enumerate(value), 2):
        if first == second:
            raise ContractError(f"{where}[{j}] repeats [{i}]")
    return tuple(value)


def dimension_space(path: Path, value: Any, dims: tuple[Sizes, ...]) -> DimensionSpace:
    """Check the `sample` table of a structure file against its listed `dims` and find the sets it allows.

    The table has `sizes` (for each dimension a list of sizes, or `{ low, high, step }` with both ends included) and
    optionally `where`: a list of comparisons over the dimensions, in Python's syntax with `+ - * // %`, `and`, `or`.
    Constraints say what the kernels can do, so the listed sets must keep them too.

    Raises:
        ContractError: names file and field.
    """
    where = f"{path}: field sample"
    if not isinstance(value, dict) or not isinstance(value.get("sizes"), dict):
        raise ContractError(f"{where} must be a table with a table `sizes`, got {value!r:.60}")
    if unknown := sorted(value.keys() - {"sizes", "where"}):
        raise ContractError(f"{where}.{unknown[0]} is not known; known: sizes, where")
    if value["sizes"].keys() != dims[0].keys():
        raise ContractError(f"{where}.sizes has {', '.join(value['sizes'])}, but dims has {', '.join(dims[0])}")
    # In the order of `dims`, so that a problem's name has its sizes in one order however it was instantiated.
    choices = {key: _choices(f"{where}.sizes.{key}", value["sizes"][key]) for key in dims[0]}
    combinations = 1
    for sizes in choices.values():
        combinations *= len(sizes)
    if combinations > MOST_COMBINATIONS:
        raise ContractError(f"{where}.sizes has {combinations} combinations, more than {MOST_COMBINATIONS}")
    texts = value.get("where", [])
    if not isinstance(texts, list):
        raise ContractError(f"{where}.where must be a list of texts, got {texts!r:.60}")
    rules = [_Rule.parse(f"{where}.where[{number}]", text, set(choices)) for number, text in enumerate(texts)]
    for number, listed in enumerate(dims):
        for rule in rules:
            if not rule.holds(listed):
                raise ContractError(f"{rule.place} ({rule.text}) is broken by dims[{number}]")
    every = (dict(zip(choices, sizes, strict=True)) for sizes in itertools.product(*choices.values()))
    allowed = tuple(sizes for sizes in every if all(rule.holds(sizes) for rule in rules))
    if not any(sizes not in dims for sizes in allowed):
        raise ContractError(f"{where} allows no set of sizes that dims does not list already")
    return DimensionSpace(allowed)


@dataclass(frozen=True)
class _Rule:
    """One constraint, parsed; evaluated by walking its tree, so a file can compute with sizes and nothing else."""

    place: str
    text: str
    tree: ast.expr

    @classmethod
    def parse(cls, place: str, text: Any, names: set[str]) -> _Rule:
        if not isinstance(text, str) or not text.strip():
            raise ContractError(f"{place} must be a text that is not empty, got {text!r:.60}")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise ContractError(f"{place} is not an expression: {text!r:.80}") from error
        if not isinstance(tree, ast.Compare | ast.BoolOp):
            raise ContractError(f"{place} must be a comparison, got {text!r:.80}")
        rule = cls(place, text, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id not in names:
                raise ContractError(f"{place} uses {node.id}, which dims does not set")
        rule.holds(dict.fromkeys(names, 1))
        return rule

    def holds(self, sizes: Sizes) -> bool:
        return bool(self._value(self.tree, sizes))

    def _value(self, node: ast.expr, sizes: Sizes) -> int:
        if isinstance(node, ast.Name):
            return sizes[node.id]
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            left, right = self._value(node.left, sizes), self._value(node.right, sizes)
            if isinstance(node.op, ast.FloorDiv | ast.Mod) and right == 0:
                raise ContractError(f"{self.place} ({self.text}) divides by zero at {dict(sizes)}")
            return _BINARY[type(node.op)](left, right)
        if isinstance(node, ast.BoolOp):
            # Every part is looked at, so that a part that is not allowed is found whatever the sizes.
            parts = [bool(self._value(part, sizes)) for part in node.values]
            return all(parts) if isinstance(node.op, ast.And) else any(parts)
        if isinstance(node, ast.Compare) and all(type(sign) in _COMPARE for sign in node.ops):
            values = [self._value(part, sizes) for part in (node.left, *node.comparators)]
            signs = [_COMPARE[type(sign)] for sign in node.ops]
            return all(sign(a, b) for sign, a, b in zip(signs, values, values[1:], strict=False))
        raise ContractError(f"{self.place} may only compare sums, products and remainders of sizes: {self.text!r:.80}")


def _choices(place: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, dict):
        if value.keys() - {"step"} != {"low", "high"} or not all(_is_size(size) for size in value.values()):
            raise ContractError(f"{place} must be {{ low, high, step }} with whole numbers above 0, got {value!r:.60}")
        if value["low"] > value["high"]:
            raise ContractError(f"{place}: low {value['low']} is above high {value['high']}")
        return tuple(range(value["low"], value["high"] + 1, value.get("step", 1)))
    if not isinstance(value, list) or not value or not all(_is_size(size) for size in value):
        wanted = "a list of whole numbers above 0, or { low, high, step }"
        raise ContractError(f"{place} must be {wanted}, got {value!r:.60}")
    if len(set(value)) != len(value):
        raise ContractError(f"{place} lists a size twice: {value!r:.60}")
    return tuple(value)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _rank(name: str, seed: int, sizes: Sizes) -> str:
    return sha256_bytes(f"{seed}/{name}/" + ",".join(f"{key}={sizes[key]}" for key in sorted(sizes)))
