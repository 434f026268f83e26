"""A syntax tree that was walked once: every subtree is a slice of one list."""

from __future__ import annotations

import ast
from collections.abc import Iterator

#: Fields that hold no code of their own: load or store, and which operator it is.
_SKIPPED = frozenset({"ctx", "op", "ops", "type_comment", "kind"})
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, in the order of the text, without contexts and operators."""
    kind = type(node)
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = tuple(name for name in kind._fields if name not in _SKIPPED)
    for name in fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            yield value
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, ast.AST):
                    yield item


class SyntaxTree:
    """All nodes of a file in the order of its text, with the parent of each.

    Args:
        root: the file; must stay unchanged.
    """

    def __init__(self, root: ast.Module) -> None:
        self.root = root
        self.nodes: list[ast.AST] = []
        self._parents: dict[int, ast.AST] = {}
        self._ends: dict[int, int] = {}
        self._places: dict[int, int] = {}
        pending: list[ast.AST | int] = [root]  # a number closes the node at that place
        while pending:
            node = pending.pop()
            if isinstance(node, int):
                self._ends[node] = len(self.nodes)
                continue
            place = len(self.nodes)
            self._places[id(node)] = place
            self.nodes.append(node)
            below = list(children(node))
            if not below:
                self._ends[place] = place + 1
                continue
            for child in below:
                self._parents[id(child)] = node
            pending.append(place)
            below.reverse()
            pending += below

    def within(self, node: ast.AST) -> list[ast.AST]:
        """The node and all below it."""
        place = self._places[id(node)]
        return self.nodes[place : self._ends[place]]

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What the node stands in; None for the file."""
        return self._parents.get(id(node))
