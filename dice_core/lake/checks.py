"""Checks: SQL under `sql/checks/` that must return no rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from dice_core.lake.objects import load_objects

_SHOWN = 20


@dataclass(frozen=True)
class CheckResult:
    """What one check found."""

    name: str
    purpose: str
    n_rows: int  #: faults found
    examples: tuple[dict[str, Any], ...]  #: the first 20 of them

    @property
    def passed(self) -> bool:
        """No fault was found."""
        return self.n_rows == 0


class Queryable(Protocol):
    """A lake, or a reader of one snapshot of it."""

    def query(self, sql: str) -> pa.Table:
        """Run one reading statement."""


def run_checks(lake: Queryable) -> list[CheckResult]:
    """Run every check, in the order of their names."""
    results = []
    for one in load_objects("checks"):
        found = lake.query(one.body)
        examples = tuple(found.slice(0, _SHOWN).to_pylist())
        results.append(CheckResult(one.name, one.purpose, found.num_rows, examples))
    return results
