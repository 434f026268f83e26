"""Rows of source files: Parquet, Arrow stream and file, JSON (one array), JSON Lines and CSV, plain or compressed.

Rows come in order and one batch at a time. Reading judges nothing but readability: values stay as they are (null, NaN,
numbers as text). A row that cannot be read at all comes out as a `Fault`, and the rows after it are still read.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from dice_core.curation.columns import Kinds, add_kinds, is_text, kinds_of_schema
from dice_core.curation.compression import Expanded, open_bytes, open_seekable
from dice_core.curation.formats import BOM, ROW_LIMIT_BYTES, STREAM_MARK, Found
from dice_core.curation.json_array import json_items
from dice_core.curation.quarantine import is_unicode
from dice_core.errors import SchemaError, SourceError

_BATCH_ROWS = 256
#: Rows of a JSON file that are looked at to find out which columns it has.
_PEEK_ROWS = 256
_STREAM_END = STREAM_MARK + b"\x00\x00\x00\x00"

# The module's own limit of 128 KiB for one field would refuse long kernels; ours is the row limit.
csv.field_size_limit(ROW_LIMIT_BYTES)


@dataclass(frozen=True)
class Read:
    """One row as the source has it."""

    locator: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """One row that is set aside: the rule that it broke, the column (empty: the row as a whole) and the value."""

    locator: str
    rule: str
    field: str
    value: object
    values: dict[str, Any]


def columns_of(found: Found) -> Kinds:
    """The columns of a file: from its schema or header; of JSON from its first rows.

    Raises:
        SourceError: the file is damaged.
        SchemaError: a column is there twice.
    """
    if found.format in ("json", "jsonl"):
        seen: Kinds = {}
        for row in itertools.islice(rows_of(found), _PEEK_ROWS):
            if isinstance(row, Read):
                add_kinds(seen, row.values)
        return seen
    if found.format == "csv":
        with open_bytes(found.path, found.codec, found.limit_bytes) as stream:
            header = next(csv.reader(_Lines(found, stream), delimiter=found.delimiter), [])
        return dict.fromkeys(_unique(found, [name.strip() for name in header]), frozenset({"any"}))
    with _damage(found), _arrow_reader(found) as (schema, _):
        return kinds_of_schema(schema)


def rows_of(found: Found) -> Iterator[Read | Fault]:
    """The rows of a file, in order.

    Raises:
        SourceError: the file is damaged; names the row reached.
    """
    readers: dict[str, Callable[[Found], Iterator[Read | Fault]]] = {"json": _json, "jsonl": _jsonl, "csv": _csv}
    for row in readers.get(found.format, _arrow)(found):
        yield _readable(row) if isinstance(row, Read) else row


def _readable(row: Read) -> Read | Fault:
    for name, value in row.values.items():
        if isinstance(value, str) and not is_unicode(value):
            return Fault(row.locator, "encoding", name, _around_fault(value), row.values)
    return row


def _arrow(found: Found) -> Iterator[Read | Fault]:
    number = 0
    with _damage(found), _arrow_reader(found) as (_, batches):
        try:
            for batch in batches:
                columns = {name: _cells(found, name, batch.column(place))
                           for place, name in enumerate(batch.schema.names)}
                for offset in range(batch.num_rows):
                    number += 1
                    yield Read(f"row {number}", {name: column[offset] for name, column in columns.items()})
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{found.path}: damaged after row {number}: {_line(error)}") from None


@contextlib.contextmanager
def _damage(found: Found) -> Iterator[None]:
    kind = "Parquet" if found.format == "parquet" else "Arrow"
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{found.path}: not a whole {kind} file (truncated?): {_line(error)}") from None


@contextlib.contextmanager
def _arrow_reader(found: Found) -> Iterator[tuple[pa.Schema, Iterable[pa.RecordBatch]]]:
    """Schema and batches of a Parquet or Arrow file."""
    if found.format == "arrow_stream":
        with _arrow_stream(found) as reader:
            _unique(found, reader.schema.names)
            yield reader.schema, _slices(reader)
            return
    with open_seekable(found.path, found.codec, found.limit_bytes) as raw:
        if found.format == "parquet":
            with pq.ParquetFile(raw, page_checksum_verification=True) as parquet:
                _unique(found, parquet.schema_arrow.names)
                yield parquet.schema_arrow, parquet.iter_batches(batch_size=_BATCH_ROWS, use_threads=False)
            return
        with _mapped(found, raw) as source, pa.ipc.open_file(source) as reader:
            _unique(found, reader.schema.names)
            yield reader.schema, _slices(reader)


@contextlib.contextmanager
def _arrow_stream(found: Found) -> Iterator[Any]:
    """A stream's reader. A stream cut between two messages reads without complaint; only the end mark tells."""
    if found.codec == "":
        with found.path.open("rb") as raw:
            raw.seek(max(0, found.path.stat().st_size - len(_STREAM_END)))
            if raw.read() != _STREAM_END:
                raise SourceError(f"{found.path}: {_NO_END}")
        with pa.memory_map(str(found.path)) as mapped:
            yield pa.ipc.open_stream(mapped)
        return
    # Buffered, because a message must come whole and one read may give less than is asked for.
    expanded = Expanded(found.path, found.codec, found.limit_bytes)
    with io.BufferedReader(expanded) as buffered:
        yield _Ended(found, pa.ipc.open_stream(buffered), expanded)


_NO_END = "the Arrow stream has no end mark: it was cut short, or never closed"


class _Ended:
    """Batches of a compressed Arrow stream, with its end mark checked after the last."""

    def __init__(self, found: Found, reader: Any, expanded: Expanded) -> None:
        self.schema = reader.schema
        self._found, self._reader, self._expanded = found, reader, expanded

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._reader
        self._expanded.drain()
        if self._expanded.tail != _STREAM_END:
            raise SourceError(f"{self._found.path}: {_NO_END}")


@contextlib.contextmanager
def _mapped(found: Found, raw: IO[bytes]) -> Iterator[Any]:
    if found.codec:
        yield raw
        return
    with pa.memory_map(str(found.path)) as mapped:
        yield mapped


def _slices(reader: Any) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file or stream, cut to `_BATCH_ROWS`."""
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        batches = iter(reader)
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(start, _BATCH_ROWS)


def _cells(found: Found, name: str, column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column.type):
        # Arrow does not check that a text column is UTF-8; converting one bad value would fail the whole batch.
        values = column.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]
    try:
        return cast(list[Any], column.to_pylist())
    except UnicodeDecodeError:
        raise SourceError(f"{found.path}: column {name!r} ({column.type}) holds text that is not UTF-8") from None


def _json(found: Found) -> Iterator[Read | Fault]:
    with open_bytes(found.path, found.codec, found.limit_bytes) as stream:
        for number, item in enumerate(json_items(found.path, stream), start=1):
            yield _object(f"row {number}", item)


def _jsonl(found: Found) -> Iterator[Read | Fault]:
    with open_bytes(found.path, found.codec, found.limit_bytes) as stream:
        for number, line in enumerate(_Lines(found, stream), start=1):
            text = line.strip()
            if not text:
                continue
            try:
                item = json.loads(text)
            except (ValueError, RecursionError) as error:
                place = _line(error)
                if isinstance(error, json.JSONDecodeError):
                    place = f"column {error.colno}: {error.msg}"
                yield Fault(f"line {number}", "json_line", "", f"line {number}, {place}: {text}", {"line": text})
                continue
            yield _object(f"line {number}", item)


def _object(locator: str, item: object) -> Read | Fault:
    return Read(locator, item) if isinstance(item, dict) else Fault(locator, "json_object", "", item, {"value": item})


def _csv(found: Found) -> Iterator[Read | Fault]:
    with open_bytes(found.path, found.codec, found.limit_bytes) as stream:
        lines = _Lines(found, stream)
        reader = csv.reader(lines, delimiter=found.delimiter, strict=True)
        header: list[str] | None = None
        while True:
            start = reader.line_num + 1
            lines.begin_row()
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if lines.ended or header is None:
                    raise SourceError(
                        f"{found.path}: line {start}: {error}: a quote is never closed, or the file was cut short"
                    ) from None
                raw = "".join(lines.kept)
                yield Fault(f"line {start}", "csv_row", "", f"line {reader.line_num}: {error}", {"line": raw})
                continue
            if not fields:
                continue
            if header is None:
                header = _unique(found, [name.strip() for name in fields])
            elif len(fields) != len(header):
                what = f"line {start}: {len(fields)} fields, the header has {len(header)}"
                yield Fault(f"line {start}", "csv_row", "", what, {"line": "".join(lines.kept)})
            else:
                yield Read(f"line {start}", dict(zip(header, fields, strict=True)))


class _Lines:
    """The lines of a text file with their ends; `kept` gathers them, for who wants a row's text as it stands."""

    def __init__(self, found: Found, stream: BinaryIO) -> None:
        self._found, self._stream = found, stream
        self._first = True
        self._number = self._kept_bytes = 0
        self.kept: list[str] = []
        self.ended = False

    def __iter__(self) -> _Lines:
        return self

    def begin_row(self) -> None:
        """Forget the lines of the row before."""
        self.kept, self._kept_bytes = [], 0

    def __next__(self) -> str:
        raw = self._stream.readline(ROW_LIMIT_BYTES + 1)
        self._number += 1
        if not raw:
            self.ended = True
            raise StopIteration
        if self._kept_bytes + len(raw) > ROW_LIMIT_BYTES:
            raise SourceError(f"{self._found.path}: line {self._number}: a row of more than {ROW_LIMIT_BYTES:,} bytes")
        line = (raw.removeprefix(BOM) if self._first else raw).decode("utf-8", "surrogateescape")
        self._first = False
        if self._found.format == "csv":
            self.kept.append(line)
            self._kept_bytes += len(raw)
        return line


def _unique(found: Found, names: list[str]) -> list[str]:
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise SchemaError(f"{found.path}: columns that are present twice: {', '.join(doubled)}")
    return names


def _around_fault(text: str) -> str:
    fault = next(place for place, letter in enumerate(text) if "\ud800" <= letter <= "\udfff")
    start = max(0, fault - 40)
    return f"character {fault}: {text[start : fault + 40]}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
