"""Query results as files and as Markdown."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from dice_core.errors import UsageError
from dice_core.files import write_atomic


def write_table(table: pa.Table, path: Path) -> Path:
    """Write a table as Parquet or CSV, by the file's ending.

    Raises:
        UsageError: another ending.
    """
    sink = io.BytesIO()
    if path.suffix == ".parquet":
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(table, sink)
    else:
        raise UsageError(f"--out {path}: the file must end in .parquet or .csv")
    return write_atomic(path, sink.getvalue())


def markdown_table(table: pa.Table) -> str:
    """A table in GitHub's Markdown; numbers to the right, four significant digits."""
    names = table.schema.names
    numeric = [pa.types.is_integer(t) or pa.types.is_floating(t) for t in table.schema.types]
    lines = [_line(names), _line(["---:" if number else "---" for number in numeric])]
    lines += [_line([_cell(row[name]) for name in names]) for row in table.to_pylist()]
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
