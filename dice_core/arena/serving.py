"""The request loop that worker and referee share, and how a failure becomes a typed answer."""

from __future__ import annotations

import mmap
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from dice_core.arena.frames import Channel, Frame
from dice_core.arena.inputs import UnsupportedValue
from dice_core.arena.regions import map_shared

Handler = Callable[[Frame], Mapping[str, Any]]
_TEXT_LIMIT = 8000
_OOM_TEXTS = ("out of memory", "bad_alloc", "can't allocate memory", "cannot allocate memory", "alloc_cpu")


class Failure(Exception):
    """A failure whose category is already known; `body` goes into the answer."""

    def __init__(self, category: str, text: str, **body: Any) -> None:
        super().__init__(text)
        self.category = category
        self.body = body


def serve(channel: Channel, handlers: Mapping[str, Handler]) -> None:
    """Answer requests, one by one, until the judge hangs up."""
    while True:
        frame = channel.receive()
        number = frame.body.get("number")
        try:
            kind, body = "done", dict(handlers[frame.kind](frame))
        except BaseException as error:  # sys.exit() in foreign code is an answer too, not an end
            kind, body = "failed", describe(error)
        channel.send(kind, {**body, "number": number})


def describe(error: BaseException) -> dict[str, Any]:
    """Category and text of a failure, safe against exceptions that misbehave while they are printed."""
    if isinstance(error, Failure):
        return {"category": error.category, "text": str(error)[-_TEXT_LIMIT:], **error.body}
    category = "unsupported" if isinstance(error, UnsupportedValue) else "exception"
    name = type(error).__name__
    try:
        message = str(error)
        trace = "".join(traceback.format_exception(error))
    except BaseException as inner:
        message, trace = "", f"{name} (its text cannot be had: {type(inner).__name__})"
    lowered = message.lower()
    if isinstance(error, MemoryError) or "OutOfMemory" in name or any(text in lowered for text in _OOM_TEXTS):
        category = "oom"
    return {"category": category, "text": trace[-_TEXT_LIMIT:], "error": f"{name}: {message[:500]}"}


def attach(frame: Frame) -> dict[str, mmap.mmap]:
    """Map the regions that a frame brings: body `regions` is a list of {name, size, write}, one descriptor each."""
    return {
        region["name"]: map_shared(fd, region["size"], write=region["write"])
        for region, fd in zip(frame.items("regions"), frame.fds, strict=True)
    }
