"""TOML files that people write and the files that are generated from them."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dice_core.errors import SourceError
from dice_core.files import write_atomic


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        SourceError: the file is not UTF-8 or not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: byte {error.start} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise SourceError(f"{path}: not TOML: {error}") from error


def write_generated(files: Mapping[Path, str]) -> None:
    """Write each file whose text changed, and say which did."""
    for path, text in files.items():
        changed = not path.exists() or path.read_text(encoding="utf-8") != text
        if changed:
            write_atomic(path, text)
        print(f"{path}: {'written' if changed else 'up to date'}", file=sys.stderr)
