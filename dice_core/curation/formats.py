"""What a source file is: its format and compression, from the content first and from the extension second."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dice_core.curation.compression import EXPANDED_LIMIT_BYTES, Codec, codec_of, open_bytes
from dice_core.errors import SourceError, UsageError

Format = Literal["parquet", "arrow_stream", "arrow_file", "json", "jsonl", "csv"]

BOM = b"\xef\xbb\xbf"
STREAM_MARK = b"\xff\xff\xff\xff"
#: Longest row, in bytes: more is not a kernel, and holding it is what a decompression bomb wants.
ROW_LIMIT_BYTES = 64 << 20
DELIMITERS = (",", ";", "\t")

_HEAD_BYTES = 1 << 16
_COMPRESSED_SUFFIXES = (".gz", ".gzip", ".zst", ".zstd")
_COLUMN_NAME = re.compile(r"[A-Za-z_][\w .:/-]{0,63}")
_KNOWN = "Parquet, Arrow stream or file, JSON, JSON Lines and CSV, each also as gzip or zstd"


@dataclass(frozen=True)
class Found:
    """A file that can be read, and how."""

    path: Path
    format: Format
    codec: Codec = ""
    delimiter: str = ""  #: of a CSV file
    limit_bytes: int = EXPANDED_LIMIT_BYTES


def detect(path: Path, *, limit_bytes: int = EXPANDED_LIMIT_BYTES) -> Found:
    """Find out a file's format.

    Raises:
        UsageError: there is no file at `path`.
        SourceError: the file is empty, damaged, or of no known format.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    try:
        if path.stat().st_size == 0:
            raise SourceError(f"{path}: the file is empty (0 bytes)")
        with path.open("rb") as raw:
            codec = codec_of(path, raw.read(8))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None
    with open_bytes(path, codec, limit_bytes) as stream:
        head = stream.read(_HEAD_BYTES)
    if not head:
        raise SourceError(f"{path}: the file is empty once it is decompressed")
    if codec and codec_of(path, head):
        raise SourceError(f"{path}: compressed twice: decompress it once")
    found, delimiter = _format(path, codec, head, limit_bytes)
    return Found(path, found, codec, delimiter, limit_bytes)


def _format(path: Path, codec: Codec, head: bytes, limit_bytes: int) -> tuple[Format, str]:
    text = head.removeprefix(BOM).lstrip()
    suffixes = [one.lower() for one in path.suffixes if one.lower() not in _COMPRESSED_SUFFIXES]
    extension = suffixes[-1] if suffixes else ""
    if head.startswith(b"PAR1"):
        return "parquet", ""
    if head.startswith(b"ARROW1"):
        return "arrow_file", ""
    if head.startswith(STREAM_MARK):
        return "arrow_stream", ""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError(f"{path}: the text is UTF-16: save it as UTF-8")
    if extension in (".jsonl", ".ndjson"):
        return "jsonl", ""
    if text.startswith(b"["):
        return "json", ""
    if text.startswith(b"{"):
        if _first_line_is_object(path, codec, limit_bytes):
            return "jsonl", ""
        raise SourceError(
            f"{path}: the JSON's top level is an object; expected an array of rows, or one row per line"
        )
    if delimiter := _delimiter(head, named_csv=extension in (".csv", ".tsv")):
        return "csv", delimiter
    shown = head[:8].decode("ascii", "backslashreplace")
    raise SourceError(f"{path}: of no known format (starts with {shown!r}); known: {_KNOWN}")


def _delimiter(head: bytes, *, named_csv: bool) -> str:
    """The character that parts a CSV header's names; empty when the first line is no header."""
    line = head.removeprefix(BOM).lstrip(b"\r\n").split(b"\n", 1)[0].decode("utf-8", "replace").rstrip("\r")
    if "\0" in line:
        return ""
    best, most = "", 1
    for delimiter in DELIMITERS:
        try:
            names = next(csv.reader([line], delimiter=delimiter, strict=True), [])
        except csv.Error:
            continue
        if len(names) > most and (named_csv or all(_COLUMN_NAME.fullmatch(name.strip()) for name in names)):
            best, most = delimiter, len(names)
    return best or ("," if named_csv and line.strip() else "")


def _first_line_is_object(path: Path, codec: Codec, limit_bytes: int) -> bool:
    with open_bytes(path, codec, limit_bytes) as lines:
        while raw := lines.readline(ROW_LIMIT_BYTES):
            if line := raw.removeprefix(BOM).strip():
                try:
                    return isinstance(json.loads(line.decode("utf-8", "surrogateescape")), dict)
                except (ValueError, RecursionError):
                    return False
    return False
