"""What `datasets/<name>/source.toml` says of a data set: where it is from, and how its columns become ConCuR's.

A data set has one or more layouts, because some are published in several forms. A layout is plain data; a new source
needs a file and no code. `datasets/README.md` describes every key.
"""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, cast

from dice_core.curation.concur import OPTIONAL_COLUMNS, SPEEDUP_COLUMN, TEXT_COLUMNS
from dice_core.errors import UsageError
from dice_core.files import sha256_bytes

#: The data sets that ship with DICE.
BUNDLED = Path(__file__).parents[2] / "datasets"
JOINED = "join."  #: prefix of a joined file's columns in a layout

Kind = Literal["records", "tasks"]

_ABOUT = ("name", "kind", "uri", "format", "revision", "sha256", "licence", "rows_expected", "paper")
#: Keys of data that this repository makes itself.
_OWN = ("generated_by", "files")
_LAYOUT = ("columns", "constants", "demands", "empty", "keep", "speedup", "join")
_TARGETS = (*TEXT_COLUMNS, *OPTIONAL_COLUMNS)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


@dataclass(frozen=True)
class From:
    """How one of our columns is made: a column, a template of columns, or a fenced block in a column's text."""

    column: str = ""
    template: str = ""
    fence_of: str = ""
    holds: str = ""  #: what the fenced block must contain; the last such block counts

    @property
    def needs(self) -> tuple[str, ...]:
        """The source columns that it reads."""
        if self.template:
            names = (name for _, name, _, _ in string.Formatter().parse(self.template) if name is not None)
            return tuple(dict.fromkeys(names))
        return (self.column or self.fence_of,)


@dataclass(frozen=True)
class Speedup:
    """Where a row's claim is: in one column, in two times, or nowhere (`claimed` is false)."""

    column: str = ""
    baseline: str = ""
    candidate: str = ""
    claimed: bool = True

    @property
    def needs(self) -> tuple[str, ...]:
        """The source columns that it reads."""
        return tuple(name for name in (self.column, self.baseline, self.candidate) if name)


@dataclass(frozen=True)
class Join:
    """A second file that rows are completed from: `on` maps columns of the source to columns of that file."""

    file: str
    on: Mapping[str, str]
    licence: str = ""


@dataclass(frozen=True)
class Layout:
    """One form in which a data set is published."""

    columns: Mapping[str, From]
    speedup: Speedup
    constants: Mapping[str, str] = field(default_factory=dict)
    demands: tuple[str, ...] = ()  #: columns that tell this layout from others, beside those that it reads
    empty: tuple[str, ...] = ()  #: texts that mean "no value"
    keep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  #: column -> values that a row may have there
    join: Join | None = None

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Every source column that the layout reads, whether it must be there or not."""
        names = [*(name for made in self.columns.values() for name in made.needs), *self.speedup.needs, *self.keep,
                 *(self.join.on if self.join else ())]
        return tuple(dict.fromkeys(name for name in names if not name.startswith(JOINED)))

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The source columns that must be there."""
        optional = {name for ours in OPTIONAL_COLUMNS if ours in self.columns for name in self.columns[ours].needs}
        return tuple(dict.fromkeys([*(name for name in self.reads if name not in optional), *self.demands]))

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The source columns whose type matters: those taken as they are, and those of the speedup."""
        taken = {made.column: "text" for made in self.columns.values() if made.column}
        found = {**taken, **dict.fromkeys(self.speedup.needs, "number")}
        return {name: kind for name, kind in found.items() if not name.startswith(JOINED)}

    @cached_property
    def is_identity(self) -> bool:
        """Whether rows are in ConCuR's columns as they come."""
        same = all(made.column == ours for ours, made in self.columns.items())
        plain = not (self.constants or self.empty or self.keep or self.join)
        return same and plain and self.speedup.column == SPEEDUP_COLUMN and set(self.columns) >= set(TEXT_COLUMNS)


@dataclass(frozen=True)
class Dataset:
    """A declared data set."""

    name: str
    layouts: tuple[Layout, ...]
    kind: Kind = "records"
    uri: str = ""
    licence: str = ""
    rows_expected: int = 0
    path: Path | None = None  #: the source.toml

    @property
    def sha256(self) -> str:
        """Hash of what decides the rows: the layouts, not what is said about them."""
        return sha256_bytes(repr((self.kind, self.layouts)))


@lru_cache(maxsize=8)
def declared(folder: Path = BUNDLED) -> tuple[Dataset, ...]:
    """The data sets under a folder whose source.toml has a layout, `concur` first, then by name.

    Raises:
        UsageError: one of the files is not valid; names file and key.
    """
    found = [one for path in sorted(folder.glob("*/source.toml")) if (one := read_dataset(path)).layouts]
    return tuple(sorted(found, key=lambda one: (one.name != "concur", one.name)))


def dataset_named(name: str, folder: Path = BUNDLED) -> Dataset:
    """A declared data set by its name, or by the path of a source.toml.

    Raises:
        UsageError: there is none of that name.
    """
    if name.endswith(".toml"):
        dataset = read_dataset(Path(name))
        if not dataset.layouts:
            raise UsageError(f"{name}: declares no [[layout]]: it cannot be curated")
        return dataset
    for dataset in declared(folder):
        if dataset.name == name:
            return dataset
    known = ", ".join(one.name for one in declared(folder))
    raise UsageError(f"no data set {name!r} is declared; known: {known} (or name a source.toml)")


def read_dataset(path: Path) -> Dataset:
    """Read and check one source.toml.

    Raises:
        UsageError: not valid TOML, an unknown key, or a value of the wrong form; names file and key.
    """
    try:
        text = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    reader = _Toml(path)
    reader.known(text, (*_ABOUT, *_OWN, "layout"), "")
    name = reader.text(text, "name")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{path}: name: {name!r} is not a name of letters, digits, '_', '.' and '-'")
    kind = text.get("kind", "records")
    if kind not in ("records", "tasks"):
        raise UsageError(f"{path}: kind: {kind!r}, expected records or tasks")
    expected = text.get("rows_expected", 0)
    if not isinstance(expected, int) or isinstance(expected, bool):
        raise UsageError(f"{path}: rows_expected: {expected!r}, expected a number")
    layouts = text.get("layout", [])
    if not isinstance(layouts, list) or not all(isinstance(one, dict) for one in layouts):
        raise UsageError(f"{path}: layout: expected [[layout]] tables")
    return Dataset(
        name,
        tuple(reader.layout(one, f"layout {place}", kind) for place, one in enumerate(layouts, start=1)),
        cast(Kind, kind),
        reader.text(text, "uri", ""),
        reader.text(text, "licence", ""),
        expected,
        path,
    )


class _Toml:
    """Checks of one file; every complaint names it and the key."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, where: str, what: str) -> UsageError:
        return UsageError(f"{self.path}: {where}: {what}")

    def known(self, table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
        for key in table:
            if key not in keys:
                prefix = f"{where}: " if where else ""
                raise UsageError(f"{self.path}: {prefix}unknown key {key!r}; known: {', '.join(keys)}")

    def text(self, table: Mapping[str, Any], key: str, default: str | None = None, where: str = "") -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            raise self.fail(f"{where}{key}", "is missing" if value is None else f"{value!r} is not a text")
        return value

    def texts(self, table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.fail(f"{where}: {key}", f"{value!r} is not a list of texts")
        return tuple(value)

    def table(self, table: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
        value = table.get(key, {})
        if not isinstance(value, dict):
            raise self.fail(f"{where}: {key}", f"{value!r} is not a table")
        return value

    def layout(self, table: Mapping[str, Any], where: str, kind: str) -> Layout:
        self.known(table, _LAYOUT, where)
        columns = {ours: self.made(made, ours, f"{where}: columns: {ours}")
                   for ours, made in self.table(table, "columns", where).items()}
        constants = dict(self.table(table, "constants", where))
        for ours, value in constants.items():
            if ours not in _TARGETS or not isinstance(value, str):
                raise self.fail(f"{where}: constants: {ours}", f"expected a text for one of {', '.join(_TARGETS)}")
        wanted = ("pytorch_code",) if kind == "tasks" else ("pytorch_code", "generated_code")
        for ours in wanted:
            if ours not in columns and ours not in constants:
                raise self.fail(f"{where}: columns", f"{ours} is not given")
        if twice := sorted(set(columns) & set(constants)):
            raise self.fail(f"{where}: constants", f"given in columns too: {', '.join(twice)}")
        join = self.join(self.table(table, "join", where), f"{where}: join") if "join" in table else None
        joined = [name for made in columns.values() for name in made.needs if name.startswith(JOINED)]
        if joined and not join:
            raise self.fail(f"{where}: columns", f"{joined[0]} needs a [join]")
        keep = {name: tuple(value) if isinstance(value, list) else (value,)
                for name, value in self.table(table, "keep", where).items()}
        for name, values in keep.items():
            if not values or not all(isinstance(one, str | int | float | bool) for one in values):
                raise self.fail(f"{where}: keep: {name}", "expected a text, a number, a truth value, or a list of them")
        return Layout(columns, self.speedup(table, where, kind), constants, self.texts(table, "demands", where),
                      self.texts(table, "empty", where), keep, join)

    def made(self, value: object, ours: str, where: str) -> From:
        if ours not in _TARGETS:
            raise self.fail(where, f"is none of our columns: {', '.join(_TARGETS)} (the speedup has its own table)")
        if isinstance(value, str) and value:
            return From(column=value)
        if isinstance(value, dict) and set(value) == {"template"}:
            made = From(template=self.text(value, "template", where=f"{where}: "))
            try:
                parts = list(string.Formatter().parse(made.template))
            except ValueError as error:
                raise self.fail(where, f"template: {error}") from None
            if any(name is not None and (not name or spec or conversion) for _, name, spec, conversion in parts):
                raise self.fail(where, "template: only plain {column} fields")
            if not made.needs:
                raise self.fail(where, "template: names no column; use constants")
            return made
        if isinstance(value, dict) and set(value) == {"fence_of", "holds"}:
            return From(fence_of=self.text(value, "fence_of", where=f"{where}: "),
                        holds=self.text(value, "holds", where=f"{where}: "))
        raise self.fail(where, "expected a column's name, { template = … } or { fence_of = …, holds = … }")

    def speedup(self, table: Mapping[str, Any], where: str, kind: str) -> Speedup:
        where = f"{where}: speedup"
        value = table.get("speedup", {"claimed": False} if kind == "tasks" else {})
        if not isinstance(value, dict):
            raise self.fail(where, f"{value!r} is not a table")
        self.known(value, ("column", "baseline", "candidate", "claimed"), where)
        keys = set(value)
        if keys == {"claimed"} and value["claimed"] is False:
            return Speedup(claimed=False)
        if keys in ({"column"}, {"baseline", "candidate"}):
            column, baseline, candidate = (
                self.text(value, key, "", where=f"{where}: ") for key in ("column", "baseline", "candidate")
            )
            return Speedup(column, baseline, candidate)
        raise self.fail(where, "expected { column = … }, { baseline = …, candidate = … } or { claimed = false }")

    def join(self, value: Mapping[str, Any], where: str) -> Join:
        self.known(value, ("file", "on", "licence"), where)
        on = self.table(value, "on", where)
        if not on or not all(isinstance(one, str) and one for one in on.values()):
            raise self.fail(f"{where}: on", "expected { column = \"column of the file\" }")
        return Join(self.text(value, "file", where=f"{where}: "), dict(on),
                    self.text(value, "licence", "", where=f"{where}: "))
