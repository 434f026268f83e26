from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import FakeHub, serve

from dice_core.curation.hub import Hub, HubPlace, parse_place
from dice_core.curation.ingest import ingest
from dice_core.curation.requests import parse_request
from dice_core.errors import HubError, SourceError, UsageError
from dice_core.files import sha256_bytes

MakeRow = Callable[..., dict[str, Any]]
REPO = "owner/kernels"
PLACE = HubPlace(REPO)


@pytest.fixture
def server() -> Iterator[FakeHub]:
    with serve() as hub:
        yield hub


@pytest.fixture
def rows(make_row: MakeRow) -> bytes:
    return "".join(json.dumps(make_row(number)) + "\n" for number in range(200)).encode()


def hub_of(home: Path, server: FakeHub, **options: Any) -> Hub:
    return Hub(home, server.url, wait_s=0.001, **options)


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("hf://datasets/a/b", HubPlace("a/b")),
        ("hf://datasets/a/b@v1.0", HubPlace("a/b", "v1.0")),
        ("hf://datasets/a/b/data/x.parquet", HubPlace("a/b", "", "data/x.parquet")),
        ("hf://datasets/a/b@refs/convert/parquet/default/train/", HubPlace("a/b", "refs/convert/parquet",
                                                                          "default/train")),
    ],
)  # fmt: skip
def test_addresses(uri: str, place: HubPlace) -> None:
    assert parse_place(uri) == place


@pytest.mark.parametrize("uri", ["hf://a/b", "hf://datasets/a", "hf://datasets/a/b/../../c", "hf://models/a/b", "hf://"])
def test_addresses_of_another_form(uri: str) -> None:
    with pytest.raises(UsageError, match=r"expected hf://datasets/owner/name"):
        parse_place(uri)


def test_a_file_is_fetched_once_pinned_and_recorded(tmp_path: Path, server: FakeHub, rows: bytes) -> None:
    commit = server.publish(REPO, {"data/rows.jsonl": rows, "README.md": b"about"})
    request = parse_request(f"hf://datasets/{REPO}/data/rows.jsonl", licence="MIT")
    specs, notes = request.specs(hub_of(tmp_path, server).fetch)
    assert not notes
    ingested = ingest(specs)
    assert ingested.counters == {"in": 200, "kept": 200}
    (file,) = ingested.source_files
    assert (file.uri, file.revision, file.licence) == (f"hf://datasets/{REPO}/data/rows.jsonl", commit, "MIT")
    lock = json.loads((tmp_path / "sources" / "hub.lock.json").read_text())[f"datasets/{REPO}@main"]
    assert lock["revision"] == commit
    assert lock["files"] == {"data/rows.jsonl": {"sha256": sha256_bytes(rows), "size_bytes": len(rows)}}
    asked = len(server.requests)
    server.publish(REPO, {"data/rows.jsonl": b"new"})
    again, notes = request.specs(hub_of(tmp_path, server).fetch)
    assert again == specs and len(server.requests) == asked
    assert len(notes) == 1 and f"stays at commit {commit[:12]}" in notes[0] and "--update" in notes[0]


def test_update_moves_to_the_newer_commit(tmp_path: Path, server: FakeHub) -> None:
    server.publish(REPO, {"x.csv": b"a,b\n1,2\n"})
    hub_of(tmp_path, server).fetch(PLACE)
    newer = server.publish(REPO, {"x.csv": b"a,b\n3,4\n"})
    fetched = hub_of(tmp_path, server, update=True).fetch(PLACE)
    assert fetched.revision == newer and fetched.files["x.csv"].read_bytes() == b"a,b\n3,4\n"
    lock = json.loads((tmp_path / "sources" / "hub.lock.json").read_text())
    assert lock[f"datasets/{REPO}@main"]["revision"] == newer


def test_a_whole_data_set_is_its_data_files(tmp_path: Path, server: FakeHub) -> None:
    server.publish(REPO, {"README.md": b"r", "b/2.json.gz": b"2", "a/1.parquet": b"1", "pic.png": b"p", "b/n.txt": b""})
    assert list(hub_of(tmp_path, server).fetch(PLACE).files) == ["a/1.parquet", "b/2.json.gz"]
    assert list(hub_of(tmp_path, server).fetch(HubPlace(REPO, "", "b")).files) == ["b/2.json.gz"]


@pytest.mark.parametrize("fault", [500, 503, 429, "cut", "garbage"])
def test_a_passing_fault_costs_another_try(tmp_path: Path, server: FakeHub, rows: bytes, fault: int | str) -> None:
    server.publish(REPO, {"rows.jsonl": rows})
    server.faults = [("resolve", fault)]
    assert hub_of(tmp_path, server).fetch(PLACE).files["rows.jsonl"].read_bytes() == rows
    assert len([path for path, _ in server.requests if "resolve" in path]) == 2
    assert not list(tmp_path.rglob("*.part"))


def test_a_connection_that_ends_early_is_taken_up_again(tmp_path: Path, server: FakeHub) -> None:
    content = bytes(range(256)) * 100_000  # the library writes pieces of 10 MiB, so a smaller file begins anew
    server.publish(REPO, {"x.parquet": content})
    server.faults = [("resolve", "cut")]
    assert hub_of(tmp_path, server).fetch(PLACE).files["x.parquet"].read_bytes() == content
    first, second = [how for path, how in server.requests if "resolve" in path]
    assert first == "" and int(second.removeprefix("bytes=").removesuffix("-")) >= 10 << 20


def test_a_passing_fault_of_the_listing_too(tmp_path: Path, server: FakeHub) -> None:
    server.publish(REPO, {"x.csv": b"a,b\n"})
    server.faults = [("api", 500), ("api", 502)]
    assert hub_of(tmp_path, server).fetch(PLACE).files["x.csv"].read_bytes() == b"a,b\n"


def test_a_download_that_was_killed_goes_on_where_it_ended(tmp_path: Path, server: FakeHub, rows: bytes) -> None:
    commit = server.publish(REPO, {"rows.jsonl": rows})
    part = tmp_path / "cache" / "hub" / REPO.replace("/", "--") / commit / ".rows.jsonl.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(rows[:1000])
    assert hub_of(tmp_path, server).fetch(PLACE).files["rows.jsonl"].read_bytes() == rows
    assert [how for path, how in server.requests if "resolve" in path] == ["bytes=1000-"]


def test_a_damaged_remainder_is_fetched_anew(tmp_path: Path, server: FakeHub, rows: bytes) -> None:
    commit = server.publish(REPO, {"rows.jsonl": rows})
    part = tmp_path / "cache" / "hub" / REPO.replace("/", "--") / commit / ".rows.jsonl.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    assert hub_of(tmp_path, server).fetch(PLACE).files["rows.jsonl"].read_bytes() == rows


def test_a_lasting_fault_is_told_and_leaves_no_file(tmp_path: Path, server: FakeHub, rows: bytes) -> None:
    server.publish(REPO, {"rows.jsonl": rows})
    server.faults = [("resolve", "garbage")] * 10
    with pytest.raises(SourceError, match=r"owner/kernels/rows\.jsonl cannot be fetched .*4 tries.*sha256 differs"):
        hub_of(tmp_path, server).fetch(PLACE)
    assert not list(tmp_path.rglob("rows.jsonl"))


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (HubPlace("owner/nothing"), "refuses access|no such data set"),
        (HubPlace(REPO, "v9"), "there is no revision 'v9'"),
        (HubPlace(REPO, "", "rows.parquet"), r"nothing at 'rows\.parquet'; it holds notes\.txt, rows\.jsonl"),
        (HubPlace(REPO, "notes"), "there is no revision 'notes'"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, server: FakeHub, rows: bytes, place: HubPlace, says: str) -> None:
    server.publish(REPO, {"rows.jsonl": rows, "notes.txt": b"n"})
    with pytest.raises(UsageError, match=says) as caught:
        hub_of(tmp_path, server).fetch(place)
    assert place.repo in str(caught.value)
    assert len(server.requests) == 1  # no use in asking again


def test_a_file_that_went_away_is_named(tmp_path: Path, server: FakeHub, rows: bytes) -> None:
    server.publish(REPO, {"rows.jsonl": rows})
    server.faults = [("resolve", 404)]
    with pytest.raises(UsageError, match=r"there is no file 'rows\.jsonl' \(status 404\)"):
        hub_of(tmp_path, server).fetch(PLACE)


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_data_set_says_how_to_give_a_token(tmp_path: Path, server: FakeHub, status: int) -> None:
    server.faults = [("api", status)]
    with pytest.raises(UsageError, match=r"refuses access .*HF_TOKEN"):
        hub_of(tmp_path, server).fetch(PLACE)


def test_without_a_server(tmp_path: Path, rows: bytes) -> None:
    with serve() as server:
        commit = server.publish(REPO, {"rows.jsonl": rows})
        hub_of(tmp_path, server).fetch(PLACE)
    # Pinned and here: nobody is asked.
    assert hub_of(tmp_path, server).fetch(PLACE).files["rows.jsonl"].read_bytes() == rows
    assert hub_of(tmp_path, server).fetch(HubPlace(REPO, commit)).revision == commit
    # A newer commit was asked for: the old one serves, and that is said.
    fetched = hub_of(tmp_path, server, update=True).fetch(PLACE)
    assert fetched.files["rows.jsonl"].read_bytes() == rows
    assert "cannot be fetched" in fetched.notes[0] and f"{commit[:12]}" in fetched.notes[0]
    # Nothing is here.
    with pytest.raises(HubError, match=r"hf://datasets/owner/other cannot be fetched from http://127"):
        hub_of(tmp_path, server).fetch(HubPlace("owner/other"))


def test_offline_uses_what_is_here_and_asks_nobody(tmp_path: Path, server: FakeHub, rows: bytes) -> None:
    server.publish(REPO, {"rows.jsonl": rows, "more.jsonl": rows})
    with pytest.raises(SourceError, match=r"not wholly in this home, and HF_HUB_OFFLINE"):
        hub_of(tmp_path, server, offline=True).fetch(PLACE)
    assert not server.requests
    hub_of(tmp_path, server).fetch(HubPlace(REPO, "", "rows.jsonl"))
    asked = len(server.requests)
    assert hub_of(tmp_path, server, offline=True).fetch(HubPlace(REPO, "", "rows.jsonl")).files
    with pytest.raises(SourceError, match=r"more\.jsonl is not wholly in this home"):
        hub_of(tmp_path, server, offline=True).fetch(PLACE)
    assert len(server.requests) == asked


def test_a_listing_may_not_lead_out_of_the_home(tmp_path: Path, server: FakeHub) -> None:
    server.publish(REPO, {"../../escaped.csv": b"a,b\n"})
    with pytest.raises(SourceError, match="outside of the data set"):
        hub_of(tmp_path, server).fetch(PLACE)


def test_what_answers_but_is_no_hub(tmp_path: Path, server: FakeHub) -> None:
    server.publish(REPO, {"x.csv": b"a"})
    server.names[REPO, "main"] = "not-a-commit"
    server.files[REPO, "not-a-commit"] = {"x.csv": b"a"}
    with pytest.raises(SourceError, match="does not answer as a hub"):
        hub_of(tmp_path, server).fetch(PLACE)
