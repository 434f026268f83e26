"""Fetch the sources, read what is new of them, and see whether this curation was done before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.curation.hub import Hub
from dice_core.curation.ingest import Ingested, ingest, open_source
from dice_core.curation.last_seen import check_drift
from dice_core.curation.nights import Night, Past, look, remember
from dice_core.curation.pipeline import CurationConfig, curation_id
from dice_core.curation.readings import Known, reading_id
from dice_core.curation.requests import SourceRequest, specs_of
from dice_core.curation.sources import Source
from dice_core.files import sha256_file
from dice_core.lake.readings import stored_counters, stored_files, stored_records
from dice_core.records import SourceFile, make_id
from dice_core.settings import hub_endpoint, hub_offline
from tasks.augment import generator_identity
from tasks.context import DATASETS, Run
from tasks.contract import CONTRACT


@dataclass(frozen=True)
class SourcesRead:
    """What the sources of a curation hold: rows that were read now, and files whose rows the lake has."""

    new: Ingested
    known: tuple[Known, ...]
    files: tuple[SourceFile, ...]  #: all of them: they decide the curation's id
    declarations: tuple[str, ...]
    nights: tuple[Night, ...] = ()

    @property
    def has_rows(self) -> bool:
        """Whether there is anything that could become a record."""
        return bool(self.new.rows) or any(one.records for one in self.known)

    @property
    def notes(self) -> list[str]:
        """What a person should know."""
        return list(self.new.notes)


@task(cache_policy=NO_CACHE)
def read_sources(
    run: Run, sources: Sequence[SourceRequest | Path], *, accept_columns: bool = False, update: bool = False,
    nightly: bool = False,
) -> SourcesRead:
    """Fetch what is not here, read the files that the lake does not know, compare their columns with those last seen.

    With `nightly`, folders also keep the rows of files that earlier nights read and that are gone.
    """
    run.progress("ingest", 0, 1)
    requests = [SourceRequest(source) if isinstance(source, Path) else source for source in sources]
    hub = Hub(run.settings.home, hub_endpoint(), offline=hub_offline(), update=update,
              say=lambda text: run.progress("fetch", 0, 1, text))
    specs, notes = specs_of(requests, hub.fetch)
    opened = [open_source(spec, run.settings.source_expanded_bytes) for spec in specs]
    contract = sha256_file(CONTRACT)
    readings = {one.path: reading_id(one, contract) for one in opened}
    known = _known(run, {readings[one.path]: one.file for one in opened})
    todo = [one for one in opened if readings[one.path] not in known]
    new = ingest(todo) if todo or not opened else Ingested((), (), (), {"in": 0, "kept": 0})
    notes += check_drift(run.settings.home, new.seen, accept=accept_columns)

    nights = _nights(run, requests, opened, readings) if nightly else []
    gone = {one.reading: one for night in nights for one in night.gone.values()}
    past = _past(run, gone)
    notes += [note for night in nights for note in _night_notes(night, past)]
    declarations = {*(one.dataset.sha256 for one in opened), *(gone[key].declaration for key in past)}
    joined = {one.joined.file.sha256: one.joined.file for one in opened if one.joined}
    files = joined | {one.file.sha256: one.file for one in (*past.values(), *known.values())} | \
        {file.sha256: file for file in new.source_files}
    done = f"{len(new.rows)} rows from {len(todo)} files"
    run.progress("ingest", 1, 1, f"{done}; {len(known) + len(past)} files are known" if known or past else done)
    fresh = replace(new, notes=(*notes, *new.notes),
                    readings={one.file.source_file_id: readings[one.path] for one in todo})
    return SourcesRead(fresh, (*past.values(), *known.values()), tuple(files.values()), tuple(sorted(declarations)),
                       tuple(nights))


def identify(run: Run, read: SourcesRead, config: CurationConfig, *, augmented: bool) -> str:
    """Id of this curation before anything is measured: sources, options and what would measure them."""
    evidence = {"environment": run.environment_id, "plan": run.settings.plan} if config.evidence != "claimed" else {}
    library = [sha256_file(path) for path in sorted((DATASETS / "structures").glob("*.toml"))] if augmented else []
    drawn = run.settings.augment_drawn
    sizes = [run.settings.augment_sets, drawn, run.settings.seed if drawn else 0]
    writer = generator_identity(run.settings) if augmented else {}
    digest = make_id("evd", {
        "evidence": evidence, "structures": library, "sizes": sizes if augmented else [], "generator": writer,
        "declarations": list(read.declarations)})
    return curation_id(read.files, config, evidence_digest=digest)


@task(cache_policy=NO_CACHE)
def version_of_curation(run: Run, curation: str) -> str | None:
    """The dataset version that this very curation made earlier, if it did."""
    with run.lake() as lake:
        found = lake.query("select dataset_version_id from dataset_version where curation_id = ?", (curation,))
    ids: list[str] = found.column(0).to_pylist()
    return ids[0] if ids else None


def remember_nights(run: Run, read: SourcesRead) -> None:
    """Write down what the folders of this night held, once all of it is in the lake."""
    for night in read.nights:
        remember(run.settings.home, night)


def _known(run: Run, files: Mapping[str, SourceFile]) -> dict[str, Known]:
    """The readings that the lake has whole, by id."""
    found: dict[str, Known] = {}
    with run.lake() as lake:
        for reading, steps in stored_counters(lake, list(files)).items():
            records = stored_records(lake, files[reading].source_file_id)
            # More records than were kept: the same file was also read by another declaration, and which are whose is
            # not written down. Reading it again is always right.
            if len(records) == steps["contract"]["kept"]:
                found[reading] = Known(files[reading], tuple(records), steps["ingest"], steps["contract"])
    return {reading: found[reading] for reading in files if reading in found}


def _nights(
    run: Run, requests: Sequence[SourceRequest], opened: Sequence[Source], readings: Mapping[Path, str]
) -> list[Night]:
    nights = []
    for request in requests:
        if isinstance(request.place, Path) and request.place.is_dir():
            folder = request.place
            now = {one.path.relative_to(folder).as_posix():
                   Past(one.file.source_file_id, readings[one.path], one.dataset.sha256)
                   for one in opened if one.path.is_relative_to(folder)}
            nights.append(look(run.settings.home, folder, now))
    return nights


def _past(run: Run, gone: Mapping[str, Past]) -> dict[str, Known]:
    with run.lake() as lake:
        files = stored_files(lake, [one.source_file_id for one in gone.values()])
    there = {reading: files[one.source_file_id] for reading, one in gone.items() if one.source_file_id in files}
    return _known(run, there)


def _night_notes(night: Night, past: Mapping[str, Known]) -> list[str]:
    notes = [f"{path}: changed since the last night; its new content counts" for path in night.changed]
    for path, one in night.gone.items():
        if one.reading in past:
            count = len(past[one.reading].records)
            notes.append(f"{path}: no longer there; its {count} records of an earlier night stay")
        else:
            notes.append(f"{path}: no longer there, and the lake does not have all of its records: it is left out")
    return notes
