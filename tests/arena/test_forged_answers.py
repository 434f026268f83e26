"""Answers that only a worker which was taken over gives: each is a ProtocolError, never a crash of the judge."""

from __future__ import annotations

import pytest

from dice_core.arena import honesty
from dice_core.arena.frames import Frame
from dice_core.arena.trees import check_tree
from dice_core.errors import ProtocolError
from dice_core.records import Honesty


@pytest.mark.parametrize("value", [10**400, float("nan"), float("inf"), "1", True, None, []])
def test_numbers_are_finite_numbers(value: object) -> None:
    with pytest.raises(ProtocolError, match="not a finite number"):
        Frame("done", {"host_us": value}).number("host_us")


@pytest.mark.parametrize("node", [
    {"k": "tensor", "dtype": [], "shape": [], "offset": 0, "nbytes": 4}, {"k": []}, {"k": {}}, {"k": "new"},
])
def test_trees_have_known_kinds_and_types(node: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        check_tree(node, 0, 1024)


def test_a_trace_that_the_text_contradicts_is_not_believed() -> None:
    assert honesty.with_text(Honesty.OWN, "own") is Honesty.OWN
    assert honesty.with_text(Honesty.OWN, "mixed") is Honesty.MIXED
    assert honesty.with_text(Honesty.OWN, "library") is Honesty.MIXED
    assert honesty.with_text(Honesty.LIBRARY, "own") is Honesty.LIBRARY
