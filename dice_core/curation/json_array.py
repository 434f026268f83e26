"""A JSON array read item by item, so that memory holds one item and not the file."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dice_core.curation.formats import BOM, ROW_LIMIT_BYTES
from dice_core.errors import SourceError

_PIECE_BYTES = 1 << 20
_SPACE = " \t\r\n"


def json_items(path: Path, stream: BinaryIO) -> Iterator[object]:
    """The items of the one array that `stream` holds. Bytes that are not UTF-8 become lone surrogates.

    Raises:
        SourceError: not valid JSON (names line and column), or an item is larger than `ROW_LIMIT_BYTES`.
    """
    window = _Window(path, stream)
    decoder = json.JSONDecoder()
    window.expect("[")
    if window.next_is("]"):
        window.finish()
        return
    while True:
        yield window.item(decoder)
        if window.next_is("]"):
            window.finish()
            return
        window.expect(",")


class _Window:
    """The part of the text that is being looked at, and where in the file it begins."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self._path, self._stream = path, stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text, self._place, self._ended = "", 0, False
        self._line, self._column = 1, 1  # of the first character of `_text`
        self._fill()
        self._text = self._text.removeprefix(BOM.decode())

    def item(self, decoder: json.JSONDecoder) -> object:
        self._skip_space()
        while True:
            try:
                value, end = decoder.raw_decode(self._text, self._place)
            except json.JSONDecodeError as error:
                # Perhaps only the window ends here; a true fault stays one when there is more to see.
                if self._ended:
                    raise self._fault(error.msg, error.pos) from None
                if len(self._text) - self._place > ROW_LIMIT_BYTES:
                    raise SourceError(
                        f"{self._path}: not valid JSON, or an item of more than {ROW_LIMIT_BYTES:,} bytes, at "
                        f"{self._where(self._place)}: {error.msg}"
                    ) from None
            except (ValueError, RecursionError) as error:
                raise self._fault(str(error).split("\n")[0][:200], self._place) from None
            else:
                if end < len(self._text) or self._ended:  # a number at the window's end may go on
                    self._place = end
                    return value
            self._fill()

    def next_is(self, letter: str) -> bool:
        """Step over `letter` if it comes next."""
        self._skip_space()
        if self._text[self._place : self._place + 1] != letter:
            return False
        self._place += 1
        return True

    def expect(self, letter: str) -> None:
        if not self.next_is(letter):
            raise self._fault(f"Expecting {letter!r}", self._place)

    def finish(self) -> None:
        self._skip_space()
        if self._place < len(self._text):
            raise self._fault("Extra data", self._place)

    def _skip_space(self) -> None:
        while True:
            while self._place < len(self._text) and self._text[self._place] in _SPACE:
                self._place += 1
            if self._place < len(self._text) or self._ended:
                return
            self._fill()

    def _fill(self) -> None:
        """Drop what was read and read on: at least as much again as is held, so that growing costs little."""
        self._line, self._column = self._position(self._place)
        held = self._text[self._place :]
        raw = self._stream.read(max(_PIECE_BYTES, len(held)))
        self._ended = not raw
        self._text, self._place = held + self._decoder.decode(raw, final=self._ended), 0

    def _position(self, place: int) -> tuple[int, int]:
        lines = self._text.count("\n", 0, place)
        if not lines:
            return self._line, self._column + place
        return self._line + lines, place - self._text.rfind("\n", 0, place)

    def _where(self, place: int) -> str:
        line, column = self._position(place)
        return f"line {line}, column {column}"

    def _fault(self, message: str, place: int) -> SourceError:
        return SourceError(f"{self._path}: not valid JSON at {self._where(place)}: {message}")
