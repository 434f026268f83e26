"""What people see: talk on stderr (a live bar on a terminal, a line each 10 s otherwise), data on stdout."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

_LINE_EVERY_S = 10.0

talk = Console(stderr=True, highlight=False)
# Piped output is not folded: programs read it, and `less -S` shows it.
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 1000)


class ConsoleProgress:
    """A `dice_core.progress.Progress` for people. Use as a context manager."""

    def __init__(self) -> None:
        self._bars = Bars(
            TextColumn("{task.description:<12}"), BarColumn(bar_width=28), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"), console=talk, transient=False, disable=not talk.is_terminal,
        )
        self._rows: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}
        self._last_line: dict[str, float] = {}

    def __enter__(self) -> ConsoleProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, step: str, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` is finished."""
        now = time.monotonic()
        started = self._started.setdefault(step, now)
        if talk.is_terminal:
            if step not in self._rows:
                self._rows[step] = self._bars.add_task(step, total=total, note="")
            self._bars.update(self._rows[step], completed=done, total=total, note=note[:60])
        elif done >= total or now - self._last_line.get(step, now - _LINE_EVERY_S) >= _LINE_EVERY_S:
            self._last_line[step] = now
            say(f"  {step:<12} {done}/{total}  {now - started:5.0f} s  {note[:80]}".rstrip())
        if done >= total:
            self._rows.pop(step, None)
            self._started.pop(step, None)
            self._last_line.pop(step, None)


def say(message: str) -> None:
    """One line of talk on stderr, printed as it is."""
    talk.print(Text(message), soft_wrap=True)


def print_json(payload: object) -> None:
    """Data as JSON on stdout."""
    json.dump(payload, sys.stdout, indent=2, default=str, ensure_ascii=False)
    sys.stdout.write("\n")


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, columns: Sequence[str] = ()) -> None:
    """Rows as a table for people, or as a JSON array."""
    if as_json:
        print_json(rows)
        return
    names = list(columns) or (list(rows[0]) if rows else [])
    if not rows:
        say("no rows")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        number = all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(Text(name), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(name))) for name in names))
    out.print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
