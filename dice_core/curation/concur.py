"""ConCuR's row (arXiv:2510.07356): the columns that every source is brought to before it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEXT_COLUMNS = ("uuid", "problem_name", "pytorch_code", "generated_code")
SPEEDUP_COLUMN = "speedup_over_eager"
REQUIRED_COLUMNS = (*TEXT_COLUMNS, SPEEDUP_COLUMN)
#: Absent reasoning is empty reasoning; every other column is what makes a row a ConCuR row.
OPTIONAL_COLUMNS = ("generated_think",)


@dataclass(frozen=True)
class RawRow:
    """One source row in ConCuR's columns, before any judgement."""

    source_file_id: str
    locator: str  #: `row 17` (counted from 1), or `line 17` of a JSON Lines or CSV file
    values: dict[str, Any]
    claims: bool = True  #: false where the data set states no speedup at all: then a null is no fault
    source_values: Mapping[str, Any] | None = None  #: the row under the source's own names, where a mapping renamed it

    @property
    def as_read(self) -> Mapping[str, Any]:
        """The row as the source has it, for quarantine."""
        return self.values if self.source_values is None else self.source_values


@dataclass(frozen=True)
class TaskRow:
    """One row of a data set of tasks: a module without a kernel. It is accounted for, and becomes no record."""

    source_file_id: str
    locator: str
    problem_name: str
    pytorch_code: str
