"""Which columns a data set had when it was last curated in this home, and what has changed since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from dice_core.curation.columns import drift
from dice_core.curation.ingest import Seen
from dice_core.errors import SchemaError
from dice_core.files import write_atomic
from dice_core.records import utc_now


def check_drift(home: Path, seen: Mapping[str, Seen], *, accept: bool = False) -> list[str]:
    """Compare the columns of each data set with those that this home last saw, then remember the new ones.

    Args:
        home: DICE_HOME; the columns are in `sources/<data set>.columns.json`.
        seen: what the files of this curation have.
        accept: take the present columns as they are.

    Returns:
        Notes about new columns, and about changes of columns that are not used.

    Raises:
        SchemaError: a used column is gone or of another type; nothing is remembered then.
    """
    faults: list[str] = []
    notes: list[str] = []
    for name, now in seen.items():
        last = _read(_file(home, name))
        if last is None:
            continue
        when, kinds = last
        wrong, said = drift(kinds, now.kinds, now.used)
        notes += [f"{name}: columns since {when[:10]}: {line}" for line in said]
        if wrong and not accept:
            faults.append("\n".join([f"{name}: columns have changed since {when}:", *(f"  {x}" for x in wrong + said)]))
    if faults:
        raise SchemaError("\n".join([*faults, "take them as they are with --accept-columns"]))
    for name, now in seen.items():
        last = _read(_file(home, name))
        if last is None or last[1] != now.kinds:
            columns = {column: sorted(kinds) for column, kinds in now.kinds.items()}
            text = json.dumps({"seen_at": utc_now(), "columns": columns}, indent=1)
            write_atomic(_file(home, name), text + "\n")
    return notes


def _file(home: Path, name: str) -> Path:
    return home / "sources" / f"{name}.columns.json"


def _read(file: Path) -> tuple[str, dict[str, frozenset[str]]] | None:
    """None where nothing was seen yet, or what was written down cannot be read: then there is nothing to compare."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return str(found["seen_at"]), {name: frozenset(kinds) for name, kinds in found["columns"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
