"""A layout applied to rows: source columns in, ConCuR's columns out, or the reason why a row is set aside."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dice_core.curation.columns import missing_text
from dice_core.curation.concur import OPTIONAL_COLUMNS, SPEEDUP_COLUMN, RawRow, TaskRow
from dice_core.curation.formats import Found
from dice_core.curation.mapping import JOINED, From, Join, Kind, Layout
from dice_core.curation.readers import Fault, Read, columns_of, rows_of
from dice_core.errors import SchemaError, SourceError
from dice_core.records import SourceFile, make_id

#: Rule of rows that a layout leaves out on purpose; they are counted and kept, and are no fault of the source.
NOT_SELECTED = "not_selected"

_FENCED = re.compile(r"^[ \t]*```[ \t]*[\w+-]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)

Key = tuple[str, ...]


@dataclass(frozen=True)
class JoinTable:
    """A joined file in memory: its rows by key, their columns named `join.<column>`."""

    join: Join
    rows: Mapping[Key, Mapping[str, Any]]
    file: SourceFile

    def of(self, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The joined columns for a row; None where the file has no such key."""
        return self.rows.get(_key(values.get(name) for name in self.join.on))


@dataclass(frozen=True)
class Applied:
    """A layout ready for the rows of one file."""

    layout: Layout
    kind: Kind
    file: SourceFile
    untyped: bool = False  #: the format has no types (CSV): texts become numbers where numbers are wanted
    joined: JoinTable | None = None
    _unused: set[str] = field(default_factory=set, compare=False)

    @cached_property
    def _used(self) -> frozenset[str]:
        return frozenset((*self.layout.reads, *self.layout.demands))

    @property
    def unused(self) -> list[str]:
        """Columns met so far that the layout does not read."""
        return sorted(self._unused)

    def row(self, row: Read) -> RawRow | TaskRow | Fault:
        """Our form of one row.

        Returns:
            RawRow; TaskRow where the data set is one of tasks; or Fault (rules `not_selected`, `join_missing`, and for
            tasks `text_type`, `not_null`, `not_blank`).
        """
        layout, values = self.layout, row.values
        self._unused.update(values.keys() - self._used)
        if layout.is_identity:
            return self._checked(row, values) if not self.untyped else self._raw(row, {**values, **self._claim(values)})
        if layout.empty:
            values = {name: None if isinstance(cell, str) and cell in layout.empty else cell
                      for name, cell in values.items()}
        for name, wanted in layout.keep.items():
            if not any(self._equal(values.get(name), one) for one in wanted):
                return Fault(row.locator, NOT_SELECTED, name, values.get(name), row.values)
        if self.joined is not None:
            more = self.joined.of(values)
            if more is None:
                on = self.joined.join.on
                return Fault(row.locator, "join_missing", ", ".join(on), {name: values.get(name) for name in on},
                             row.values)
            values = {**values, **more}
        return self._checked(row, self._ours(row, values))

    def _ours(self, row: Read, values: Mapping[str, Any]) -> dict[str, Any]:
        layout = self.layout
        ours: dict[str, Any] = {**layout.constants}
        for name, made in layout.columns.items():
            if name in OPTIONAL_COLUMNS and not any(needed in values for needed in made.needs):
                continue
            ours[name] = _make(made, values)
        if "uuid" not in ours:
            # Stable for the same row of the same bytes, whatever the file is called.
            ours["uuid"] = make_id("row", {"source": self.file.sha256, "row": row.locator})
        ours.setdefault("problem_name", ours["uuid"])
        others = {name: cell for name, cell in row.values.items() if name not in layout.reads}
        return {**others, **ours, **self._claim(values)}

    def _claim(self, values: Mapping[str, Any]) -> dict[str, Any]:
        speedup = self.layout.speedup
        if speedup.column and speedup.column not in values:
            return {}
        if not speedup.claimed:
            return {SPEEDUP_COLUMN: None}
        cells = [self._number(values.get(name)) for name in speedup.needs]
        return {SPEEDUP_COLUMN: cells[0] if len(cells) == 1 else _ratio(*cells)}

    def _number(self, cell: Any) -> Any:
        if not self.untyped or not isinstance(cell, str):
            return cell
        if not cell.strip():
            return None
        try:
            return float(cell)
        except ValueError:
            return cell

    def _equal(self, cell: Any, wanted: object) -> bool:
        if self.untyped and isinstance(cell, str):
            if isinstance(wanted, bool):
                return cell.strip().lower() == str(wanted).lower()
            if not isinstance(wanted, str):
                return bool(self._number(cell) == wanted)
        return isinstance(cell, bool) == isinstance(wanted, bool) and bool(cell == wanted)

    def _checked(self, row: Read, values: dict[str, Any]) -> RawRow | TaskRow | Fault:
        if self.kind == "records":
            return self._raw(row, values)
        code, name = values.get("pytorch_code"), values.get("problem_name")
        rule = "not_null" if code is None else "text_type" if not isinstance(code, str) else "not_blank"
        if not isinstance(code, str) or not code.strip():
            return Fault(row.locator, rule, "pytorch_code", code, row.values)
        return TaskRow(self.file.source_file_id, row.locator, str(name), code)

    def _raw(self, row: Read, values: dict[str, Any]) -> RawRow:
        source = None if values is row.values else row.values
        return RawRow(self.file.source_file_id, row.locator, values, self.layout.speedup.claimed, source)


def read_join(join: Join, found: Found, file: SourceFile) -> JoinTable:
    """Read a joined file whole; it is a suite of problems, not a data set.

    Raises:
        SchemaError: a key column is missing.
        SourceError: a row cannot be read, or a key is there twice; names the rows.
    """
    there = columns_of(found)
    if missing := [name for name in join.on.values() if name not in there]:
        parts = missing_text(missing, there, join.on.values())
        raise SchemaError(f"{found.path}: cannot be joined; {'; '.join(parts)}")
    rows: dict[Key, Mapping[str, Any]] = {}
    places: dict[Key, str] = {}
    for row in rows_of(found):
        if isinstance(row, Fault):
            raise SourceError(f"{found.path}: {row.locator} cannot be read ({row.rule} {row.field}): {row.value}")
        key = _key(row.values.get(name) for name in join.on.values())
        if key in rows:
            raise SourceError(f"{found.path}: {places[key]} and {row.locator} have the same key {', '.join(key)}")
        rows[key] = {f"{JOINED}{name}": cell for name, cell in row.values.items()}
        places[key] = row.locator
    return JoinTable(join, rows, file)


def join_path(join: Join, beside: Path, given: Path | None) -> Path | None:
    """Where the joined file is: the one given, else the declared name beside the source or in the working folder."""
    if given is not None:
        return given
    return next((path for path in (beside.parent / join.file, Path(join.file)) if path.is_file()), None)


def _make(made: From, values: Mapping[str, Any]) -> Any:
    if made.column:
        return values.get(made.column)
    if made.template:
        parts = {name: values.get(name) for name in made.needs}
        if any(part is None for part in parts.values()):
            return None
        return "".join(
            literal + ("" if name is None else _word(parts[name]))
            for literal, name, _, _ in string.Formatter().parse(made.template)
        )
    return _fence(_messages(values.get(made.fence_of)), made.holds)


def _fence(text: Any, holds: str) -> Any:
    """The last fenced block that contains `holds`; None where there is none. What is no text stays what it is."""
    if not isinstance(text, str):
        return text
    found = [block for block in _FENCED.findall(text) if holds in block]
    return found[-1] if found else None


def _messages(value: Any) -> Any:
    """A chat as one text: the contents of its messages, in order."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and value:
        contents = [one.get("content") if isinstance(one, Mapping) else one for one in value]
        texts = [one for one in contents if isinstance(one, str)]
        if len(texts) == len(contents):
            return "\n".join(texts)
    return value


def _ratio(baseline: Any, candidate: Any) -> Any:
    """The baseline over the candidate; a cell that is no number is handed on as it is, for the contract to name."""
    for cell in (baseline, candidate):
        if isinstance(cell, bool) or not isinstance(cell, int | float):
            return cell
    try:
        return float(baseline) / float(candidate)
    except ZeroDivisionError:
        return math.inf
    except OverflowError:
        return math.nan


def _key(cells: Any) -> Key:
    return tuple(_word(cell) for cell in cells)


def _word(cell: Any) -> str:
    """A cell as text; a whole number is the same as integer, as float and as text."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
