"""Nearly equal modules: their text after names and numbers are blanked, compared by shingles, without sampling.

Two modules are near when the Jaccard similarity of their shingles (runs of `_SHINGLE` tokens, with how often each
occurs) is at least `NEAR`. The join is exact: by prefix filtering (Bayardo, Ma and Srikant, WWW 2007) a pair can only
be near when it shares one of the rarest shingles of each, so few pairs are compared and none is missed.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TypeGuard

from dice_core.arena.static_tree import SyntaxTree
from dice_core.curation.normalise import parse, tidy

#: Least similarity of near modules.
NEAR = 0.9
_SHINGLE = 4
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\S")

Shingle = tuple[str, int]


@lru_cache(maxsize=8_192)
def canonical(source: str) -> str:
    """The module with attributes of `self` renamed in order of appearance; other text as it is.

    Names of layers are a matter of taste, like those of variables, which the fingerprints blank already. Names that a
    base class gives a meaning to (methods of the class itself) stay.
    """
    try:
        tree = parse(source)
        nodes = SyntaxTree(tree).nodes
        methods = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        names: dict[str, str] = {}
        assigned = {node.attr for node in nodes if _of_self(node) and isinstance(node.ctx, ast.Store)}
        for node in nodes:
            if _of_self(node) and node.attr in assigned and node.attr not in methods:
                node.attr = names.setdefault(node.attr, f"attribute{len(names)}")
        return ast.unparse(tree)
    except (SyntaxError, RecursionError):
        return tidy(source)


def near_pairs(modules: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Pairs of names whose modules are near.

    Args:
        modules: name -> canonical source.
    """
    shingles = {name: _shingles(text) for name, text in modules.items()}
    frequency = Counter(one for found in shingles.values() for one in found)
    index: dict[Shingle, list[str]] = {}
    # Shorter ones first: a partner that was met earlier is never longer.
    for name in sorted(shingles, key=lambda name: (len(shingles[name]), name)):
        mine = shingles[name]
        size = len(mine)
        rarest = sorted(mine, key=lambda one: (frequency[one], one))[:size - _least(size) + 1]
        candidates = {other for one in rarest for other in index.get(one, ())}
        for other in sorted(candidates):
            theirs = shingles[other]
            if len(theirs) >= NEAR * size:
                common = len(mine & theirs)
                if common >= NEAR * (size + len(theirs) - common):
                    yield other, name
        for one in rarest:
            index.setdefault(one, []).append(name)


def _least(size: int) -> int:
    """Shingles that a partner has in common at least (rounded down, so that no pair is missed)."""
    return int(NEAR * size)


def _shingles(text: str) -> frozenset[Shingle]:
    words = ["0" if word[0].isdigit() else word for word in _TOKEN.findall(_definitions(text))]
    runs = Counter(" ".join(words[place:place + _SHINGLE]) for place in range(max(1, len(words) - _SHINGLE + 1)))
    return frozenset((run, number) for run, count in runs.items() for number in range(count))


def _definitions(text: str) -> str:
    """Classes and helper functions alone, with local names blanked: inputs and sizes are not the module."""
    try:
        return _definitions_of(parse(text)) or text
    except (SyntaxError, RecursionError):
        return text


def _definitions_of(tree: ast.Module) -> str:
    kept = [node for node in tree.body if isinstance(node, ast.ClassDef)
            or (isinstance(node, ast.FunctionDef) and node.name not in ("get_inputs", "get_init_inputs"))]
    names: dict[str, str] = {}
    whole = SyntaxTree(tree)
    for statement in kept:
        for node in whole.within(statement):
            if isinstance(node, ast.arg) and node.arg != "self":
                node.arg = names.setdefault(node.arg, f"v{len(names)}")
                node.annotation = None
            elif isinstance(node, ast.Name) and (isinstance(node.ctx, ast.Store) or node.id in names):
                node.id = names.setdefault(node.id, f"v{len(names)}")
    return "\n".join(ast.unparse(node) for node in kept)


def _of_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
