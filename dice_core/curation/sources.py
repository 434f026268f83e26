"""Source files: what they are, which data set's layout they have, and their rows in ConCuR's columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dice_core.curation.apply import Applied, JoinTable, join_path, read_join
from dice_core.curation.columns import Kinds, add_kinds, missing_text, wrong_types
from dice_core.curation.compression import EXPANDED_LIMIT_BYTES
from dice_core.curation.concur import RawRow, TaskRow
from dice_core.curation.formats import Format, Found, detect
from dice_core.curation.mapping import Dataset, Layout, declared
from dice_core.curation.quarantine import quarantine
from dice_core.curation.readers import Fault, columns_of, rows_of
from dice_core.errors import SchemaError, SourceError, UsageError
from dice_core.files import sha256_file
from dice_core.records import QuarantineRow, SourceFile, utc_now

#: Files in a folder of data that are no data and need no word.
SILENT_SUFFIXES = (".md", ".txt", ".toml", ".yaml", ".yml", ".lock", ".crc")
SILENT_NAMES = ("LICENSE", "LICENCE", "_SUCCESS", "README", ".gitattributes")
_NO_TYPES = ("csv",)
#: Formats whose columns and types are those of their rows: what is wrong with one row is that row's fault.
_BY_ROW = ("json", "jsonl")


@dataclass(frozen=True)
class SourceSpec:
    """A source file to read and what is known about where it came from."""

    path: Path
    uri: str | None = None
    revision: str = ""
    licence: str = ""  #: empty: what the data set's source.toml says
    dataset: Dataset | None = None  #: None: found by the columns
    join: Path | None = None  #: file that rows are completed from; None: the one that source.toml names


@dataclass(frozen=True)
class Source:
    """An opened source file: what it is, and its rows on request."""

    path: Path
    file: SourceFile
    dataset: Dataset
    applied: Applied
    found: Found
    kinds: Kinds = field(default_factory=dict)  #: the columns and what they hold; of JSON complete after reading

    @property
    def format(self) -> Format:
        """The file's format, whatever it is called."""
        return self.found.format

    @property
    def joined(self) -> JoinTable | None:
        """The file that its rows are completed from."""
        return self.applied.joined

    def rows(self) -> Iterator[RawRow | TaskRow | QuarantineRow]:
        """Read the rows in order, one batch at a time.

        Yields:
            RawRow (TaskRow of a data set of tasks), or QuarantineRow for a row that cannot be read (rules `json_line`,
            `json_object`, `csv_row`, `encoding`), that lacks its other half (`join_missing`) or that the data set's
            declaration leaves out (`not_selected`).

        Raises:
            SourceError: the file is damaged or has no rows; names the file and the row reached.
            SchemaError: required columns are missing from all rows.
        """
        empty = True
        by_row = self.format in _BY_ROW
        if by_row:
            self.kinds.clear()
        for read in rows_of(self.found):
            empty = False
            if isinstance(read, Fault):
                yield self._aside(read)
                continue
            if by_row:
                add_kinds(self.kinds, read.values)
            row = self.applied.row(read)
            yield self._aside(row) if isinstance(row, Fault) else row
        if empty:
            raise SourceError(f"{self.path}: the file holds no rows")
        if by_row:
            # A key may be absent from single rows (the contract says so row by row), but not from the whole file.
            _check(self.path, self.dataset, self.applied.layout, self.kinds, types=False)

    def _aside(self, fault: Fault) -> QuarantineRow:
        return quarantine(
            self.file.source_file_id, fault.locator, fault.rule, fault.field, fault.value, fault.values
        )


def read_source(
    path: Path,
    *,
    uri: str | None = None,
    revision: str = "",
    licence: str = "",
    dataset: Dataset | None = None,
    join: Path | None = None,
    limit_bytes: int = EXPANDED_LIMIT_BYTES,
) -> Source:
    """Hash a source file and find out what it is. Its rows are read by `Source.rows`.

    Args:
        path: the file.
        uri: where it came from; when None its name, below the working folder with its path.
        revision: the version of `uri` that was fetched.
        licence: the licence of the rows, as an SPDX id where there is one; when empty that of the data set.
        dataset: whose layouts it may have; when None it is found among the bundled declarations by its columns.
        join: the file that rows are completed from, where the layout has a join.
        limit_bytes: most bytes that a compressed file may become.

    Raises:
        UsageError: there is no file at `path`, or the joined file cannot be found.
        SourceError: the file is empty, damaged, or of no known format.
        SchemaError: its columns are those of no (or of several) declared data sets.
    """
    found = detect(path, limit_bytes=limit_bytes)
    kinds = columns_of(found)
    if not kinds and found.format in _BY_ROW:
        _refuse_without_rows(found)
    chosen, layout = _layout(path, kinds, [dataset] if dataset else declared())
    _check(path, chosen, layout, kinds, types=found.format not in _BY_ROW)
    file = SourceFile(
        uri=local_uri(path) if uri is None else uri,
        revision=revision,
        sha256=sha256_file(path),
        size_bytes=path.stat().st_size,
        licence=licence or chosen.licence,
        fetched_at=utc_now(),
    )
    joined = _joined(path, chosen, layout, join, limit_bytes)
    applied = Applied(layout, chosen.kind, file, untyped=found.format in _NO_TYPES, joined=joined)
    return Source(path, file, chosen, applied, found, kinds)


def local_uri(path: Path) -> str:
    """How a local file is named in records and cards: relative below the working folder, else by its name alone."""
    try:
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    except ValueError:
        return path.name


def files_below(folder: Path) -> tuple[list[Path], list[str]]:
    """The data files of a folder and its subfolders in order, and a note for each file of an unknown kind.

    Files whose names begin with a dot or an underscore are temporary or bookkeeping, and are left out.

    Raises:
        UsageError: there is nothing to read.
    """
    files: list[Path] = []
    notes: list[str] = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if not path.is_file() or any(part.startswith((".", "_")) for part in inside):
            continue
        if path.suffix.lower() in SILENT_SUFFIXES or path.name in SILENT_NAMES:
            continue
        try:
            detect(path)
        except SourceError as error:
            if "of no known format" not in str(error):
                raise
            notes.append(f"left out: {error}")
        else:
            files.append(path)
    if not files:
        raise UsageError(f"{folder}: holds no file that can be read" + (f" ({notes[0]})" if notes else ""))
    return files, notes


def _layout(path: Path, kinds: Kinds, among: Sequence[Dataset]) -> tuple[Dataset, Layout]:
    """The layout that a file has: the one that accounts for most of its columns, else the nearest."""
    pairs = [(dataset, layout) for dataset in among for layout in dataset.layouts]
    fits = [pair for pair in pairs if set(pair[1].needs) <= kinds.keys()]
    if fits:
        best = max(len(layout.needs) for _, layout in fits)
        likely = [pair for pair in fits if len(pair[1].needs) == best]
        names = list(dict.fromkeys(dataset.name for dataset, _ in likely))
        if len(names) > 1:
            raise SchemaError(f"{path}: the columns fit several data sets: {', '.join(names)}; say NAME={path.name}")
        return likely[0]
    # The nearest, so that the complaint is about what was probably meant.
    return max(pairs, key=lambda pair: len(kinds.keys() & set(pair[1].needs)) / len(pair[1].needs))


def _check(path: Path, dataset: Dataset, layout: Layout, kinds: Kinds, *, types: bool) -> None:
    missing = [name for name in layout.needs if name not in kinds]
    if missing:
        parts = missing_text(missing, kinds, (*layout.reads, *layout.demands))
        raise SchemaError("; ".join([f"{path}: these are not the columns of {dataset.name}", *parts]))
    if types and (wrong := wrong_types(kinds, layout.types)):
        raise SchemaError("; ".join([f"{path}: these are not the columns of {dataset.name}", *wrong]))


def _joined(path: Path, dataset: Dataset, layout: Layout, given: Path | None, limit_bytes: int) -> JoinTable | None:
    if layout.join is None:
        return None
    where = join_path(layout.join, path, given)
    if where is None:
        raise UsageError(
            f"{path}: rows of {dataset.name} only name their problem; {layout.join.file} must be beside the file or in "
            "the working folder, or be given with --join"
        )
    found = detect(where, limit_bytes=limit_bytes)
    file = SourceFile(local_uri(where), "", sha256_file(where), where.stat().st_size, layout.join.licence, utc_now())
    return read_join(layout.join, found, file)


def _refuse_without_rows(found: Found) -> None:
    """A file whose first rows are all broken says so; one without rows too."""
    first: Iterable[object] = rows_of(found)
    fault = next(iter(first), None)
    if fault is None:
        raise SourceError(f"{found.path}: the file holds no rows")
    if isinstance(fault, Fault):
        raise SourceError(f"{found.path}: none of the first rows can be read; {fault.locator}: {fault.value}")
