"""Problem suites: KernelBench's tasks as Parquet, JSONL or a folder of `level<L>/<number>_<name>.py` files."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dice_core.errors import SchemaError, SourceError, UsageError
from dice_core.records import Problem

_COLUMNS = ("level", "problem_id", "name", "code")
_FILE_NAME = re.compile(r"(\d+)_(.+)\.py")


def load_suite(path: Path, suite: str = "") -> list[Problem]:
    """Read all problems of a suite, sorted by level and number.

    Args:
        path: a Parquet or JSONL file with the columns level, problem_id, name, code, or a folder with `level<L>/`.
        suite: the suite's name; the file's stem when empty.

    Raises:
        UsageError: there is nothing at `path`.
        SourceError: the file is unreadable, or a row or code is unusable; names file, row and field.
        SchemaError: columns are missing.
    """
    suite = suite or path.stem
    if path.is_dir():
        problems = _read_folder(path, suite)
    elif path.is_file():
        rows = _read_parquet(path) if path.read_bytes()[:4] == b"PAR1" else _read_jsonl(path)
        problems = [_problem(path, number, row, suite) for number, row in enumerate(rows)]
    else:
        raise UsageError(f"{path}: no such file or folder of problems")
    problems.sort(key=lambda problem: (problem.level, problem.number))
    for first, second in itertools.pairwise(problems):
        if (first.level, first.number) == (second.level, second.number):
            raise SourceError(f"{path}: level {first.level} has problem_id {first.number} twice")
    return problems


def select(problems: list[Problem], wanted: str) -> list[Problem]:
    """Pick problems by a selection such as `1`, `1/19`, `1/1-20,2/3`: level, or level/number, or a range of numbers.

    Raises:
        UsageError: the selection cannot be read, or a part of it names no problem.
    """
    chosen: dict[tuple[int, int], Problem] = {}
    for part in wanted.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:/(\d+)(?:-(\d+))?)?\s*", part)
        if match is None:
            raise UsageError(f"problem selection {part!r}: write level, level/number or level/first-last")
        level, first, last = (int(group) if group else None for group in match.groups())
        found = [p for p in problems if p.level == level and (first is None or first <= p.number <= (last or first))]
        if not found:
            raise UsageError(f"problem selection {part.strip()!r} names no problem of this suite")
        chosen |= {(p.level, p.number): p for p in found}
    return [chosen[key] for key in sorted(chosen)]


def with_sizes(problem: Problem, sizes: Mapping[str, int]) -> Problem:
    """The problem with module-level size constants replaced; the change is recorded in `overrides`.

    Only plain `NAME = <expression>` assignments at module level can be replaced, so the model itself stays untouched.

    Raises:
        UsageError: the module has no such constant.
    """
    tree = ast.parse(problem.source)
    lines = problem.source.splitlines(keepends=True)
    todo = dict(sizes)
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(target, ast.Name) and target.id in todo:
            assert node.end_lineno is not None
            lines[node.lineno - 1 : node.end_lineno] = [f"{target.id} = {todo.pop(target.id)}\n"] + [""] * (
                node.end_lineno - node.lineno
            )
    if todo:
        constants = [t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]
        raise UsageError(
            f"level {problem.level} problem {problem.number} ({problem.name}) has no module-level constant "
            f"{', '.join(sorted(todo))}; it has: {', '.join(constants) or 'none'}"
        )
    return replace(problem, source="".join(lines), overrides=dict(sizes))


def parse_sizes(options: list[str]) -> dict[tuple[int, int], dict[str, int]]:
    """Read `--size level/number:NAME=value,NAME=value` options.

    Raises:
        UsageError: an option does not have that form.
    """
    sizes: dict[tuple[int, int], dict[str, int]] = {}
    for option in options:
        match = re.fullmatch(r"(\d+)/(\d+):(\w+=\d+(?:,\w+=\d+)*)", option.replace(" ", ""))
        if match is None:
            raise UsageError(f"--size {option!r}: write level/number:NAME=value[,NAME=value…], e.g. 1/19:dim=4096")
        level, number, pairs = match.groups()
        new = {name: int(value) for name, value in (pair.split("=") for pair in pairs.split(","))}
        sizes.setdefault((int(level), int(number)), {}).update(new)
    return sizes


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    try:
        table = pq.ParquetFile(path).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path}: not a readable Parquet file: {error}") from error
    _need_columns(path, table.schema.names)
    rows: list[dict[str, Any]] = table.select(list(_COLUMNS)).to_pylist()
    return rows


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: byte {error.start} is not UTF-8") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise SourceError(f"{path}: line {number}, column {error.colno}: not JSON: {error.msg}") from error
        if not isinstance(row, dict):
            raise SourceError(f"{path}: line {number}: a JSON object is needed, got {type(row).__name__}")
        _need_columns(path, list(row))
        rows.append(row)
    if not rows:
        raise SourceError(f"{path}: no problems in this file")
    return rows


def _need_columns(path: Path, names: list[str]) -> None:
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise SchemaError(f"{path}: missing columns {', '.join(missing)}; found {', '.join(names)}")


def _read_folder(path: Path, suite: str) -> list[Problem]:
    problems = []
    for folder in sorted(path.glob("level*")):
        level = folder.name.removeprefix("level").strip("_")
        for file in sorted(folder.glob("*.py")):
            match = _FILE_NAME.fullmatch(file.name)
            if match is None or not level.isdigit():
                raise SourceError(f"{file}: expected level<L>/<number>_<name>.py")
            row = {"level": int(level), "problem_id": int(match[1]), "name": f"{match[1]}_{match[2]}",
                   "code": file.read_text(encoding="utf-8")}
            problems.append(_problem(file, 0, row, suite))
    if not problems:
        raise SourceError(f"{path}: no level<L>/<number>_<name>.py files in this folder")
    return problems


def _problem(path: Path, number: int, row: Mapping[str, Any], suite: str) -> Problem:
    where = f"{path}: row {number}"
    for name, kind in (("level", int), ("problem_id", int), ("name", str), ("code", str)):
        if not isinstance(row[name], kind) or isinstance(row[name], bool):
            raise SourceError(f"{where}: {name} must be {kind.__name__}, got {row[name]!r:.80}")
    for needed in ("class Model", "def get_inputs"):
        if needed not in row["code"]:
            raise SourceError(f"{where} ({row['name']}): code has no `{needed}`")
    return Problem(suite, row["level"], row["problem_id"], row["name"], row["code"])
