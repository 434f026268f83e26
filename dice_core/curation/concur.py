"""Readers of ConCuR-like files: Parquet, Arrow stream, Arrow file, JSON (one array) and JSON Lines.

ConCuR (arXiv:2510.07356) is published as one Arrow stream file with the columns uuid, problem_name, pytorch_code,
generated_code, generated_think and speedup_over_eager. The format is found from the content first and from the
extension second. Reading judges nothing but readability: values reach the contract as they are (null, NaN, numbers
as text); a row that cannot be read at all comes out as a quarantine row, and the rows after it are still read.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from dice_core.curation.quarantine import is_unicode, quarantine
from dice_core.errors import SchemaError, SourceError, UsageError
from dice_core.files import sha256_file
from dice_core.records import QuarantineRow, SourceFile, utc_now

Format = Literal["parquet", "arrow_stream", "arrow_file", "json", "jsonl"]

TEXT_COLUMNS = ("uuid", "problem_name", "pytorch_code", "generated_code")
SPEEDUP_COLUMN = "speedup_over_eager"
REQUIRED_COLUMNS = (*TEXT_COLUMNS, SPEEDUP_COLUMN)
#: Absent reasoning is empty reasoning; every other column is what makes a row a ConCuR row.
OPTIONAL_COLUMNS = ("generated_think",)

_BATCH_ROWS = 256
_BOM = b"\xef\xbb\xbf"
_STREAM_MARK = b"\xff\xff\xff\xff"
_STREAM_END = _STREAM_MARK + b"\x00\x00\x00\x00"
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
    b"\xfd7zXZ": "xz",
}


@dataclass(frozen=True)
class RawRow:
    """One source row as read, before any judgement."""

    source_file_id: str
    locator: str  #: `row 17` (counted from 1), or `line 17` of a JSON Lines file
    values: dict[str, Any]


@dataclass(frozen=True)
class Source:
    """An opened source file: what it is, and its rows on request."""

    path: Path
    file: SourceFile
    format: Format

    def rows(self) -> Iterator[RawRow | QuarantineRow]:
        """Read the rows in order; Parquet and Arrow in batches, so memory holds one batch.

        Yields:
            RawRow, or QuarantineRow (rules `json_line`, `json_object`, `encoding`) for a row that cannot be read.

        Raises:
            SourceError: the file is damaged or has no rows; names the file and the row reached.
            SchemaError: required columns are missing, doubled or of a type that cannot hold their values.
        """
        readers = {
            "parquet": self._parquet,
            "arrow_stream": self._arrow_stream,
            "arrow_file": self._arrow_file,
            "json": self._json,
            "jsonl": self._jsonl,
        }
        empty = True
        for row in readers[self.format]():
            empty = False
            yield row
        if empty:
            raise SourceError(f"{self.path}: the file holds no rows")

    def _parquet(self) -> Iterator[RawRow | QuarantineRow]:
        try:
            with pq.ParquetFile(self.path, page_checksum_verification=True) as reader:
                self._check_schema(reader.schema_arrow)
                yield from self._batches(reader.iter_batches(batch_size=_BATCH_ROWS, use_threads=False))
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{self.path}: not a whole Parquet file (truncated?): {_line(error)}") from None

    def _arrow_stream(self) -> Iterator[RawRow | QuarantineRow]:
        with self.path.open("rb") as raw:
            raw.seek(max(0, self.file.size_bytes - len(_STREAM_END)))
            # A stream cut between two messages reads without complaint; only the end mark tells.
            if raw.read() != _STREAM_END:
                raise SourceError(f"{self.path}: the Arrow stream has no end mark: it was cut short, or never closed")
        yield from self._arrow(pa.ipc.open_stream)

    def _arrow_file(self) -> Iterator[RawRow | QuarantineRow]:
        yield from self._arrow(pa.ipc.open_file)

    def _arrow(self, opener: Callable[[pa.NativeFile], Any]) -> Iterator[RawRow | QuarantineRow]:
        try:
            with pa.memory_map(str(self.path)) as mapped:
                reader = opener(mapped)
                self._check_schema(reader.schema)
                yield from self._batches(_slices(reader))
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{self.path}: not a whole Arrow file (truncated?): {_line(error)}") from None

    def _batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[RawRow | QuarantineRow]:
        number = 0
        try:
            for batch in batches:
                columns = {
                    name: self._column(name, batch.column(place)) for place, name in enumerate(batch.schema.names)
                }
                for offset in range(batch.num_rows):
                    number += 1
                    yield self._row(f"row {number}", {name: column[offset] for name, column in columns.items()})
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{self.path}: damaged after row {number}: {_line(error)}") from None

    def _column(self, name: str, column: pa.Array) -> list[Any]:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if _is_text(column.type):
            # Arrow does not check that a text column is UTF-8; converting one bad value would fail the whole batch.
            values = column.cast(pa.large_binary()).to_pylist()
            return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]
        try:
            return column.to_pylist()  # type: ignore[no-any-return]
        except UnicodeDecodeError:
            raise SourceError(f"{self.path}: column {name!r} ({column.type}) holds text that is not UTF-8") from None

    def _json(self) -> Iterator[RawRow | QuarantineRow]:
        text = self.path.read_bytes().removeprefix(_BOM).decode("utf-8", "surrogateescape")
        try:
            items = json.loads(text)
        except json.JSONDecodeError as error:
            raise SourceError(
                f"{self.path}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}"
            ) from None
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{self.path}: not valid JSON: {_line(error)}") from None
        self._check_names({name for item in items if isinstance(item, dict) for name in item})
        for number, item in enumerate(items, start=1):
            yield self._object(f"row {number}", item)

    def _jsonl(self) -> Iterator[RawRow | QuarantineRow]:
        names: set[str] = set()
        with self.path.open("rb") as lines:
            for number, raw in enumerate(lines, start=1):
                line = raw.removeprefix(_BOM) if number == 1 else raw
                text = line.decode("utf-8", "surrogateescape").strip()
                if not text:
                    continue
                locator = f"line {number}"
                try:
                    item = json.loads(text)
                except (ValueError, RecursionError) as error:
                    place = (
                        f"column {error.colno}: {error.msg}"
                        if isinstance(error, json.JSONDecodeError)
                        else _line(error)
                    )
                    yield quarantine(
                        self.file.source_file_id,
                        locator,
                        "json_line",
                        "",
                        f"line {number}, {place}: {text}",
                        {"line": text},
                    )
                    continue
                if isinstance(item, dict):
                    names |= set(item)
                yield self._object(locator, item)
        # A key may be absent from single rows (the contract says so row by row), but not from the whole file.
        self._check_names(names)

    def _object(self, locator: str, item: object) -> RawRow | QuarantineRow:
        if isinstance(item, dict):
            return self._row(locator, item)
        return quarantine(self.file.source_file_id, locator, "json_object", "", item, {"value": item})

    def _row(self, locator: str, values: dict[str, Any]) -> RawRow | QuarantineRow:
        for name, value in values.items():
            if isinstance(value, str) and not is_unicode(value):
                return quarantine(self.file.source_file_id, locator, "encoding", name, _around_fault(value), values)
        return RawRow(self.file.source_file_id, locator, values)

    def _check_schema(self, schema: pa.Schema) -> None:
        self._check_names(schema.names)
        for name in (*TEXT_COLUMNS, *OPTIONAL_COLUMNS):
            kind = schema.field(name).type if name in schema.names else pa.null()
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not (_is_text(kind) or pa.types.is_null(kind) or (name == "uuid" and pa.types.is_integer(kind))):
                raise SchemaError(f"{self.path}: column {name!r} has type {kind}, expected text")
        kind = schema.field(SPEEDUP_COLUMN).type
        number = pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)
        if not (number or _is_text(kind) or pa.types.is_null(kind)):
            raise SchemaError(f"{self.path}: column {SPEEDUP_COLUMN!r} has type {kind}, expected a number")

    def _check_names(self, found: Sequence[str] | set[str]) -> None:
        names = sorted(found) if isinstance(found, set) else list(found)
        missing = [name for name in REQUIRED_COLUMNS if name not in names]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if not missing and not doubled:
            return
        unexpected = [name for name in names if name not in REQUIRED_COLUMNS + OPTIONAL_COLUMNS]
        parts = [f"{self.path}: these are not ConCuR's columns"]
        if missing:
            parts.append(f"missing: {', '.join(missing)}")
        if doubled:
            parts.append(f"present twice: {', '.join(doubled)}")
        if unexpected:
            parts.append(f"unexpected: {', '.join(unexpected)}")
        for name in missing:
            if close := difflib.get_close_matches(name, unexpected, n=1, cutoff=0.5):
                parts.append(f"rename {close[0]} to {name}?")
        raise SchemaError("; ".join(parts))


def read_source(path: Path, *, uri: str | None = None, revision: str = "", licence: str = "") -> Source:
    """Hash a source file and find out what it is. Its rows are read by `Source.rows`.

    Args:
        path: the file.
        uri: where it came from; the path as given when None.
        revision: the version of `uri` that was fetched.
        licence: the licence of the rows, as an SPDX id where there is one.

    Raises:
        UsageError: there is no file at `path`.
        SourceError: the file is empty, compressed, or of no known format.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    size = path.stat().st_size
    if size == 0:
        raise SourceError(f"{path}: the file is empty (0 bytes)")
    found = _detect(path)
    file = SourceFile(
        uri=str(path) if uri is None else uri,
        revision=revision,
        sha256=sha256_file(path),
        size_bytes=size,
        licence=licence,
        fetched_at=utc_now(),
    )
    return Source(path, file, found)


def _detect(path: Path) -> Format:
    with path.open("rb") as source:
        head = source.read(8)
        text = (head + source.read(1 << 16)).removeprefix(_BOM).lstrip()
    extension = path.suffix.lower()
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"ARROW1"):
        return "arrow_file"
    if head.startswith(_STREAM_MARK):
        return "arrow_stream"
    for mark, name in _COMPRESSED.items():
        if head.startswith(mark):
            raise SourceError(f"{path}: compressed with {name}: decompress it first")
    if extension in (".jsonl", ".ndjson"):
        return "jsonl"
    if text.startswith(b"["):
        return "json"
    if text.startswith(b"{") and _first_line_is_object(path):
        return "jsonl"
    if text.startswith(b"{"):
        raise SourceError(f"{path}: the JSON's top level is an object; expected an array of rows, or one row per line")
    shown = head.decode("ascii", "backslashreplace")
    raise SourceError(
        f"{path}: of no known format (starts with {shown!r}); known: Parquet, Arrow stream or file, JSON, JSON Lines"
    )


def _first_line_is_object(path: Path) -> bool:
    with path.open("rb") as lines:
        for raw in lines:
            if line := raw.removeprefix(_BOM).strip():
                try:
                    return isinstance(json.loads(line.decode("utf-8", "surrogateescape")), dict)
                except (ValueError, RecursionError):
                    return False
    return False


def _slices(reader: Any) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file or stream, cut to `_BATCH_ROWS`."""
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        batches = iter(reader)
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(start, _BATCH_ROWS)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
    )
    return any(test(kind) for test in tests)


def _around_fault(text: str) -> str:
    fault = next(place for place, letter in enumerate(text) if "\ud800" <= letter <= "\udfff")
    start = max(0, fault - 40)
    return f"character {fault}: {text[start : fault + 40]}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
