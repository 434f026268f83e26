"""Source files that are compressed as a whole: gzip and zstd, decompressed while they are read, within a bound."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, Literal, cast

import pyarrow as pa

from dice_core.errors import SourceError

Codec = Literal["", "gzip", "zstd"]

#: Most bytes that one compressed file may become, unless the caller says otherwise (setting `source_expanded_bytes`).
EXPANDED_LIMIT_BYTES = 16 << 30

_CODECS: dict[bytes, Codec] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_NOT_READ = {
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
    b"\xfd7zXZ": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"7z\xbc\xaf": "7z",
}
_PIECE_BYTES = 1 << 20
_TAIL_BYTES = 8


def codec_of(path: Path, head: bytes) -> Codec:
    """The compression that a file's first bytes show; empty when there is none.

    Raises:
        SourceError: it is compressed in a way that is not read.
    """
    for mark, codec in _CODECS.items():
        if head.startswith(mark):
            return codec
    for mark, name in _NOT_READ.items():
        if head.startswith(mark):
            raise SourceError(f"{path}: compressed with {name}: decompress it first (gzip and zstd need not be)")
    return ""


class Expanded(io.RawIOBase):
    """The decompressed bytes of a gzip or zstd file, in order; concatenated members count as one.

    Reading raises SourceError where the file is cut short or damaged, and where it becomes larger than the bound.
    zstd without a checksum of its own cannot tell a changed byte that still decodes.
    """

    def __init__(self, path: Path, codec: Codec, limit_bytes: int = EXPANDED_LIMIT_BYTES) -> None:
        super().__init__()
        self._path, self._codec, self._limit = path, codec, limit_bytes
        self._file = pa.OSFile(str(path))
        self._stream = pa.CompressedInputStream(self._file, codec)
        self.size_bytes = 0
        self.tail = b""  #: the last 8 bytes read

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill `buffer` with the next bytes; 0 at the end."""
        view = memoryview(cast(bytearray, buffer)).cast("B")
        try:
            piece: bytes = self._stream.read(min(len(view), _PIECE_BYTES))
        except (OSError, pa.ArrowException) as error:
            raise SourceError(
                f"{self._path}: the {self._codec} compression is cut short or damaged after "
                f"{self.size_bytes:,} decompressed bytes: {' '.join(str(error).split())[:200]}"
            ) from None
        view[: len(piece)] = piece
        self.size_bytes += len(piece)
        self.tail = (self.tail + piece[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        if self.size_bytes > self._limit:
            raise SourceError(
                f"{self._path}: {self._path.stat().st_size:,} bytes of {self._codec} become more than "
                f"{self._limit:,}: a decompression bomb? (setting source_expanded_bytes raises the bound)"
            )
        return len(piece)

    def drain(self) -> None:
        """Read what is left, so that the checks at the end of the compression are made."""
        while self.read(_PIECE_BYTES):
            pass

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._stream.close()
            self._file.close()
        super().close()


@contextlib.contextmanager
def open_bytes(path: Path, codec: Codec, limit_bytes: int) -> Iterator[BinaryIO]:
    """The file's bytes in order, decompressed where it is compressed."""
    raw = path.open("rb", buffering=0) if codec == "" else Expanded(path, codec, limit_bytes)
    with io.BufferedReader(cast(io.RawIOBase, raw), _PIECE_BYTES) as stream:
        yield cast(BinaryIO, stream)


@contextlib.contextmanager
def open_seekable(path: Path, codec: Codec, limit_bytes: int) -> Iterator[IO[bytes]]:
    """The file for reading at any place; a compressed one is unpacked to a temporary file without a name.

    Raises:
        SourceError: the compression is damaged or too large, or the disk has no room for what it becomes.
    """
    if codec == "":
        with path.open("rb") as plain:
            yield plain
        return
    with tempfile.TemporaryFile() as unpacked, Expanded(path, codec, limit_bytes) as stream:
        try:
            while piece := stream.read(_PIECE_BYTES):
                unpacked.write(piece)
            unpacked.flush()
        except OSError as error:
            raise SourceError(
                f"{path}: cannot be unpacked to {tempfile.gettempdir()} ({stream.size_bytes:,} bytes so far): {error}"
            ) from None
        unpacked.seek(0)
        yield unpacked
