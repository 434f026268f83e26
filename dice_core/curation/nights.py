"""Which content each path of a folder had on the nights before: what was rotated away, what was changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dice_core.errors import UsageError
from dice_core.files import write_atomic


@dataclass(frozen=True)
class Past:
    """One file of an earlier night."""

    source_file_id: str
    reading: str
    declaration: str  #: hash of the declaration it was read by: part of a curation's id


@dataclass(frozen=True)
class Night:
    """A folder's files now, and those of earlier nights that are no longer there."""

    folder: Path
    gone: Mapping[str, Past]  #: by path in the folder
    changed: tuple[str, ...]
    files: Mapping[str, Past]


def look(home: Path, folder: Path, now: Mapping[str, Past]) -> Night:
    """Compare a folder with what the nights before saw.

    Args:
        home: DICE_HOME; the memory is `sources/nights.json`.
        folder: the folder.
        now: its files by their path in it.
    """
    before = {path: Past(*entry) for path, entry in _read(home).get(_key(folder), {}).items()}
    present = {one.source_file_id for one in now.values()}
    # A file that was moved is not gone: its content is still there.
    gone = {path: one for path, one in before.items() if path not in now and one.source_file_id not in present}
    changed = tuple(path for path, one in before.items()
                    if path in now and now[path].source_file_id != one.source_file_id)
    return Night(folder, gone, changed, now)


def remember(home: Path, night: Night) -> None:
    """Write down what this night covers; for the nights to come."""
    entries = {path: [one.source_file_id, one.reading, one.declaration]
               for path, one in {**night.gone, **night.files}.items()}
    nights = _read(home)
    if nights.get(_key(night.folder)) != entries:
        text = json.dumps({**nights, _key(night.folder): entries}, indent=1, sort_keys=True)
        write_atomic(_file(home), text + "\n")


def _key(folder: Path) -> str:
    return str(folder.resolve())


def _file(home: Path) -> Path:
    return home / "sources" / "nights.json"


def _read(home: Path) -> dict[str, dict[str, list[str]]]:
    try:
        found: dict[str, dict[str, list[str]]] = json.loads(_file(home).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UsageError(
            f"{_file(home)}: not valid JSON ({error}); without it the next night covers what is in the folder now"
        ) from None
    return found
