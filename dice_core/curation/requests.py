"""What a person names as a source: a file, a folder or a place on the hub, with or without the name of its data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dice_core.curation.hub import SCHEME, Fetched, HubPlace, parse_place
from dice_core.curation.mapping import Dataset, dataset_named, declared
from dice_core.curation.sources import SourceSpec, files_below
from dice_core.errors import UsageError

Fetch = Callable[[HubPlace], Fetched]


@dataclass(frozen=True)
class SourceRequest:
    """One source as it was named, before anything is looked at."""

    place: Path | HubPlace
    dataset: Dataset | None = None  #: None: found by the columns of each file
    licence: str = ""
    join: Path | None = None

    def __str__(self) -> str:
        """The place, for people."""
        return str(self.place) if isinstance(self.place, Path) else self.place.uri(self.place.path)

    def specs(self, fetch: Fetch) -> tuple[list[SourceSpec], list[str]]:
        """The files to read, and notes.

        Raises:
            UsageError: nothing there can be read.
            SourceError: a file is damaged, or the hub cannot be reached.
        """
        if isinstance(self.place, HubPlace):
            fetched = fetch(self.place)
            specs = [SourceSpec(file, self.place.uri(path), fetched.revision, self.licence, self.dataset, self.join)
                     for path, file in fetched.files.items()]
            return specs, list(fetched.notes)
        files, notes = files_below(self.place) if self.place.is_dir() else ([self.place], [])
        if self.place.is_dir():
            # A file that rows are joined to lies beside them, and is no source of rows itself.
            known = (self.dataset,) if self.dataset else declared()
            joins = {layout.join.file for one in known for layout in one.layouts if layout.join}
            notes += [f"not read for rows: {file} (rows are joined to it)" for file in files if file.name in joins]
            files = [file for file in files if file.name not in joins]
        return [SourceSpec(file, licence=self.licence, dataset=self.dataset, join=self.join) for file in files], notes


def parse_request(text: str, *, dataset: str = "", licence: str = "", join: Path | None = None) -> SourceRequest:
    """Read `FILE`, `FOLDER`, `hf://datasets/owner/name[@revision][/path]`, or `NAME=` before one of them.

    Args:
        text: what was typed.
        dataset: name of a declared data set, or path of a source.toml, for sources without a `NAME=` of their own.
        licence: licence of the rows, instead of what the data set's declaration says.
        join: file that rows are completed from.

    Raises:
        UsageError: there is no such file, folder, data set, or the address is malformed.
    """
    name, mark, rest = text.partition("=")
    # A folder of a date is called dt=2026-11-30: only a declared name before the = is a name.
    if mark and any(one.name == name for one in declared()):
        text, dataset = rest, name
    elif mark and not text.startswith(SCHEME) and not Path(text).exists() and "/" not in name:
        known = ", ".join(one.name for one in declared())
        raise UsageError(f"{text}: no such file, and {name!r} is no declared data set ({known})")
    found = dataset_named(dataset) if dataset else None
    if join is not None and not join.is_file():
        raise UsageError(f"{join}: no such file (--join)")
    if text.startswith(SCHEME):
        return SourceRequest(parse_place(text), found, licence, join)
    place = Path(text)
    if not place.is_file() and not place.is_dir():
        raise UsageError(f"{place}: no such file or folder")
    return SourceRequest(place, found, licence, join)


def specs_of(requests: Sequence[SourceRequest], fetch: Fetch) -> tuple[list[SourceSpec], list[str]]:
    """The files of all requests in order, and notes."""
    specs: list[SourceSpec] = []
    notes: list[str] = []
    for request in requests:
        more, said = request.specs(fetch)
        specs += more
        notes += said
    return specs, notes
