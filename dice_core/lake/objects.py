"""The SQL objects under `sql/`: one object a file, found by folder, ordered by what they read.

The files are the published definition of every number: views and reports are created from them for each connection,
the analysts' database is filled from them, checks are run from them, and the report prints their text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from dice_core.errors import LakeError
from dice_core.files import sha256_bytes

SQL_ROOT = Path(__file__).resolve().parents[2] / "sql"

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class SqlObject:
    """One file under `sql/`: its name, its header comment and its one statement."""

    name: str
    header: str  #: the leading comment lines, without the dashes
    body: str
    text: str  #: the whole file
    sha256: str  #: of the file, so that a claim can name the exact definition

    @property
    def purpose(self) -> str:
        """First sentence of the header, without the object's name."""
        line = self.header.partition("\ngrain:")[0].replace("\n", " ")
        return line.removeprefix(f"{self.name}:").strip()


def _read(path: Path) -> SqlObject:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    split = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    header = "\n".join(line.removeprefix("--").strip() for line in lines[:split])
    body = "\n".join(lines[split:]).strip().rstrip(";")
    if not header.startswith(f"{path.stem}:") or not body:
        raise LakeError(f"{path}: must start with a comment `-- {path.stem}: …` and hold one statement")
    return SqlObject(path.stem, header, body, text, sha256_bytes(text))


@cache
def load_objects(kind: str, root: Path = SQL_ROOT) -> tuple[SqlObject, ...]:
    """All objects of one folder (`schema`, `views`, `reports` or `checks`), by name.

    Raises:
        LakeError: the folder is missing or a file has no header.
    """
    folder = root / kind
    if not folder.is_dir():
        raise LakeError(f"{folder}: the SQL definitions are missing from this installation")
    return tuple(_read(path) for path in sorted(folder.glob("*.sql")))


@cache
def ordered_views(root: Path = SQL_ROOT) -> tuple[SqlObject, ...]:
    """Views and reports, each after the ones it reads.

    Raises:
        LakeError: the definitions read each other in a circle.
    """
    views = {one.name: one for one in (*load_objects("views", root), *load_objects("reports", root))}
    reads = {name: (words(one.body) & views.keys()) - {name} for name, one in views.items()}
    try:
        return tuple(views[name] for name in TopologicalSorter(reads).static_order())
    except CycleError as error:
        raise LakeError(f"{root}: views read each other in a circle: {' -> '.join(error.args[1])}") from error


@cache
def needed_views(names: frozenset[str], root: Path = SQL_ROOT) -> tuple[SqlObject, ...]:
    """The views among `names` and all that they read, each after the ones it reads."""
    wanted = set(names)
    for one in reversed(ordered_views(root)):
        if one.name in wanted:
            wanted |= words(one.body)
    return tuple(one for one in ordered_views(root) if one.name in wanted)


def words(sql: str) -> frozenset[str]:
    """All words of a statement in lower case, without those in comments and string literals."""
    return frozenset(_NAME.findall(re.sub(r"--[^\n]*|'(?:[^']|'')*'", " ", sql).lower()))
