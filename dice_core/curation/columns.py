"""The columns of a source: what kinds of value they hold, and how they differ from what was expected."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

#: column -> what its values are: text, number, boolean, list, struct, other; `any` where the format has no types (CSV)
Kinds = dict[str, frozenset[str]]

#: Text that a careless writer stored as bytes is text.
_TEXT_TESTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)
_NUMBER_TESTS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_ACCEPTS = {"text": {"text", "any"}, "number": {"number", "text", "any"}}


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this Arrow type can hold text."""
    return any(test(kind) for test in _TEXT_TESTS)


def kinds_of_schema(schema: pa.Schema) -> Kinds:
    """The kinds of an Arrow schema's columns; of doubled names the last counts."""
    return {field.name: _kind_of_type(field.type) for field in schema}


def add_kinds(seen: Kinds, values: Mapping[str, object]) -> None:
    """Add what one row holds to `seen`; a null shows that the column is there, and no kind."""
    for name, value in values.items():
        known = seen.get(name)
        kind = _kind_of_value(value)
        if known is None:
            seen[name] = frozenset({kind} if kind else ())
        elif kind and kind not in known:
            seen[name] = known | {kind}


def wrong_types(found: Kinds, wanted: Mapping[str, str]) -> list[str]:
    """What is wrong with the types of columns that are to hold `text` or a `number` (numbers as text are rows' faults).

    Args:
        found: kinds of the columns that are there.
        wanted: column -> `text` or `number`.
    """
    return [
        f"{name} holds {_words(found[name])}, expected {kind}"
        for name, kind in wanted.items()
        if not found.get(name, frozenset()) <= _ACCEPTS[kind]
    ]


def missing_text(missing: Sequence[str], found: Iterable[str], known: Iterable[str]) -> list[str]:
    """Missing and unexpected columns in words, with the nearest names."""
    unexpected = [name for name in dict.fromkeys(found) if name not in set(known)]
    parts = [f"missing: {', '.join(missing)}"] if missing else []
    if unexpected:
        parts.append(f"unexpected: {', '.join(unexpected)}")
    for name in missing:
        if close := difflib.get_close_matches(name, unexpected, n=1, cutoff=0.5):
            parts.append(f"rename {close[0]} to {name}?")
    return parts


def drift(last: Kinds, now: Kinds, used: Iterable[str]) -> tuple[list[str], list[str]]:
    """What has changed since the columns were last seen: (faults, notes).

    A column that the mapping uses and that is gone or of another type is a fault; new columns, and changes of columns
    that nobody uses, are notes.
    """
    needed = set(used)
    faults: list[str] = []
    notes: list[str] = []
    gone = [name for name in last if name not in now]
    new = [name for name in now if name not in last]
    for name in gone:
        close = difflib.get_close_matches(name, new, n=1, cutoff=0.5)
        hint = f" (now called {close[0]}?)" if close else ""
        (faults if name in needed else notes).append(f"- {name}: {_words(last[name])}{hint}")
    for name in sorted(set(last) & set(now)):
        before, after = last[name], now[name]
        if before and after and "any" not in before | after and not before & after:
            line = f"~ {name}: was {_words(before)}, is {_words(after)}"
            (faults if name in needed else notes).append(line)
    notes += [f"+ {name}: {_words(now[name])}" for name in new]
    return faults, notes


def _kind_of_type(kind: pa.DataType) -> frozenset[str]:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_null(kind):
        return frozenset()
    if is_text(kind):
        return frozenset({"text"})
    if pa.types.is_boolean(kind):
        return frozenset({"boolean"})
    if any(test(kind) for test in _NUMBER_TESTS):
        return frozenset({"number"})
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return frozenset({"list"})
    return frozenset({"struct"} if pa.types.is_struct(kind) or pa.types.is_map(kind) else {"other"})


def _kind_of_value(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "boolean"
        case str() | bytes():
            return "text"
        case numbers.Number():
            return "number"
        case list() | tuple():
            return "list"
        case Mapping():
            return "struct"
        case _:
            return "other"


def _words(kinds: frozenset[str]) -> str:
    return " or ".join(sorted(kinds)) if kinds else "nothing but nulls"
