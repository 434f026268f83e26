"""How a row that cannot be used is written down: whole where it is small, with length and hash where it is not."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from dice_core.files import sha256_bytes
from dice_core.records import QuarantineRow

#: Longest offending value shown, in characters.
VALUE_LIMIT = 500
#: Longest text of one field kept in `raw_json`, in characters.
FIELD_LIMIT = 65_536

_SURROGATE = re.compile("[\ud800-\udfff]")


def quarantine(
    source_file_id: str, locator: str, rule: str, field: str, value: object, values: Mapping[str, Any]
) -> QuarantineRow:
    """A quarantine row for one broken rule of one source row.

    Args:
        source_file_id: id of the file.
        locator: place in the file, such as `row 17`.
        rule: the rule that the row broke.
        field: the column at fault, empty when it is the row as a whole.
        value: the offending value; shown as JSON, cut at `VALUE_LIMIT`.
        values: the row as read; texts over `FIELD_LIMIT` are cut, with their full length and sha256 beside them.
    """
    return QuarantineRow(source_file_id, locator, rule, field, show(value), raw_json(values))


def show(value: object) -> str:
    """A value as text for people: JSON, cut at `VALUE_LIMIT` characters with a note of the full length."""
    text = printable(value) if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False)
    if len(text) <= VALUE_LIMIT:
        return text
    note = f" … ({len(text)} characters)"
    return text[: VALUE_LIMIT - len(note)] + note


def raw_json(values: Mapping[str, Any]) -> str:
    """The row as JSON text. Numbers that JSON has no form for become the texts `NaN`, `Infinity`, `-Infinity`."""
    return json.dumps({printable(str(name)): _capped(value) for name, value in values.items()}, ensure_ascii=False)


def printable(text: str) -> str:
    r"""The text with every lone surrogate escaped: `\xff` for a byte that was not UTF-8, `\ud800` otherwise."""

    def escape(match: re.Match[str]) -> str:
        code = ord(match.group())
        return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"

    return _SURROGATE.sub(escape, text)


def is_unicode(text: str) -> bool:
    """Whether the text has a UTF-8 form (no lone surrogates)."""
    return _SURROGATE.search(text) is None


def _capped(value: object) -> object:
    plain = _plain(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    if len(text) <= FIELD_LIMIT:
        return plain
    return {
        "cut_text": text[:FIELD_LIMIT],
        "characters": len(text),
        "sha256": sha256_bytes(text),
    }


def _plain(value: object) -> object:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value).replace("nan", "NaN").replace("inf", "Infinity")
        case str():
            return printable(value)
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case Mapping():
            return {printable(str(name)): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return str(value)
