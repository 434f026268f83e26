"""Sources on the Hugging Face hub: `hf://datasets/owner/name[@revision][/path]`, pinned to a commit and kept.

A revision that is a name (`main` where none is given) is resolved once and written to a lock in the home; later runs
use the same commit until they are told to look for a newer one. Files lie under `cache/hub` by commit, so that what was
fetched once is read again without a network. A download that was cut short goes on where it ended, and its size and
hash are checked before the file gets its name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from dice_core.curation.sources import SILENT_NAMES
from dice_core.errors import HubError, SourceError, UsageError
from dice_core.files import fsync_dir, sha256_file, write_atomic
from dice_core.records import utc_now

SCHEME = "hf://"
#: Files that are fetched when a whole data set or a folder of one is named.
_DATA = re.compile(r"\.(parquet|arrow|json|jsonl|ndjson|csv|tsv)(\.(gz|gzip|zst|zstd))?$", re.IGNORECASE)
_PLACE = re.compile(
    r"hf://datasets/(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/(?:convert/[\w.-]+|pr/\d+)|[^/@]+))?(?:/(?P<path>.*))?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TRIES = 4
_PIECE_BYTES = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True)
class HubPlace:
    """What a `hf://` address names."""

    repo: str
    revision: str = ""  #: a branch, a tag or a commit; empty means `main`
    path: str = ""  #: a file or a folder; empty means the whole data set

    def uri(self, path: str) -> str:
        """Address of one file of it, without the revision (which is recorded beside it)."""
        return f"{SCHEME}datasets/{self.repo}/{path}"


@dataclass(frozen=True)
class Fetched:
    """Files of one place, on this machine."""

    files: Mapping[str, Path]  #: by their path in the data set
    revision: str  #: the commit
    notes: tuple[str, ...] = ()


def parse_place(uri: str) -> HubPlace:
    """Read a `hf://` address.

    Raises:
        UsageError: it is none.
    """
    match = _PLACE.fullmatch(uri)
    path = (match["path"] or "").strip("/") if match else ""
    if not match or not _is_inside(path or "x"):
        raise UsageError(f"{uri}: expected hf://datasets/owner/name[@revision][/path]")
    return HubPlace(match["repo"], match["revision"] or "", path)


class Hub:
    """A hub and this home's copies of its files.

    Args:
        home: DICE_HOME.
        endpoint: address of the hub.
        offline: never ask it.
        update: look for a newer commit of a revision that is a name.
        say: told about each download.
        wait_s: pause before the second try, doubled for each later one.
    """

    def __init__(
        self, home: Path, endpoint: str, *, offline: bool = False, update: bool = False,
        say: Callable[[str], None] = lambda text: None, wait_s: float = 1.0,
    ) -> None:
        self._cache, self._lock_file = home / "cache" / "hub", home / "sources" / "hub.lock.json"
        self._endpoint = endpoint.rstrip("/")
        self._offline, self._update, self._say, self._wait_s = offline, update, say, wait_s

    def fetch(self, place: HubPlace) -> Fetched:
        """The files of a place, fetched as far as they are not here.

        Raises:
            UsageError: the data set, revision or path does not exist, or asks for a token.
            SourceError: the hub cannot be reached and the files are not all here, or what it sends is damaged.
        """
        notes: list[str] = []
        commit = self._commit(place, notes)
        listing = self._listing(place, commit)
        files: dict[str, Path] = {}
        wanted = _choose(place, listing)
        for number, path in enumerate(wanted, start=1):
            target = self._folder(place, commit) / path
            if not target.is_file():
                self._say(f"{place.repo}: {path} ({_size(listing[path])}), file {number} of {len(wanted)}")
                self._download(place, commit, path, listing[path], target)
            files[path] = target
        self._record(place, commit, files)
        return Fetched(files, commit, tuple(notes))

    def _commit(self, place: HubPlace, notes: list[str]) -> str:
        if _COMMIT.fullmatch(place.revision):
            return place.revision
        name = place.revision or "main"
        locked = self._locks().get(_key(place))
        if locked is not None and not self._update:
            notes.append(f"{place.repo}@{name} stays at commit {locked['revision'][:12]} "
                         f"of {locked['resolved_at'][:10]}; --update looks for a newer one")
            return str(locked["revision"])
        try:
            info = self._ask(place, lambda: self._api().dataset_info(place.repo, revision=name, files_metadata=True))
        except HubError as error:
            if locked is None:
                raise
            notes.append(f"{error}; commit {locked['revision'][:12]} of {locked['resolved_at'][:10]} is used instead")
            return str(locked["revision"])
        if not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
            raise HubError(f"{self._endpoint} does not answer as a hub: it names no commit of {place.repo}@{name}")
        self._keep_listing(place, info)
        return info.sha

    def _listing(self, place: HubPlace, commit: str) -> dict[str, dict[str, Any]]:
        """Size, sha256 (of large files) and git blob id of every file of a commit, by path."""
        file = self._listing_file(place, commit)
        if not file.is_file():
            info = self._ask(place, lambda: self._api().dataset_info(place.repo, revision=commit, files_metadata=True))
            if info.sha != commit:
                raise HubError(f"{self._endpoint} answered with commit {info.sha} for {place.repo}@{commit}")
            self._keep_listing(place, info)
        found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def _keep_listing(self, place: HubPlace, info: Any) -> None:
        listing = {}
        for one in info.siblings or ():
            if not _is_inside(one.rfilename):
                raise SourceError(f"{place.repo}: the hub lists a file outside of the data set: {one.rfilename!r}")
            listing[one.rfilename] = {"size": one.size, "sha256": one.lfs.sha256 if one.lfs else "",
                                      "blob": one.blob_id or ""}
        write_atomic(self._listing_file(place, info.sha), json.dumps(listing, indent=1, sort_keys=True))

    def _download(self, place: HubPlace, commit: str, path: str, about: Mapping[str, Any], target: Path) -> None:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils._headers import build_hf_headers
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
        part = target.with_name(f".{target.name}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        url = hf_hub_url(place.repo, path, repo_type="dataset", revision=commit, endpoint=self._endpoint)

        def get() -> None:
            with part.open("r+b" if part.exists() else "w+b") as out:
                size = out.seek(0, os.SEEK_END)
                if about["size"] is not None and size > about["size"]:
                    size = out.seek(0)
                    out.truncate()
                http_get(url, out, resume_size=size, headers=build_hf_headers(), expected_size=about["size"])
                out.flush()
                os.fsync(out.fileno())
            if wrong := _differs(part, about):
                part.unlink()  # what was resumed may be what is wrong: the next try begins anew
                raise OSError(wrong)

        self._ask(place, get, path)
        os.replace(part, target)
        fsync_dir(target.parent)

    def _ask(self, place: HubPlace, call: Callable[[], T], path: str = "") -> T:
        """Call the hub; try again what may be a passing fault, and put the rest into words."""
        from huggingface_hub.errors import HfHubHTTPError, HTTPError

        what = f"{place.repo}{'/' + path if path else ''}"
        if self._offline:
            raise HubError(f"hf://datasets/{what} is not wholly in this home, and HF_HUB_OFFLINE forbids to ask")
        failure = ""
        for number in range(_TRIES):
            if number:
                time.sleep(self._wait_s * 2 ** (number - 1))
            try:
                return call()
            except HfHubHTTPError as error:
                status = error.response.status_code
                if status < 500 and status not in (408, 429):
                    raise _refused(place, path, status, error) from None
                failure = f"status {status}"
            except (HTTPError, OSError) as error:
                failure = " ".join(str(error).split())[:200] or type(error).__name__
        raise HubError(f"hf://datasets/{what} cannot be fetched from {self._endpoint} ({_TRIES} tries): {failure}")

    def _api(self) -> Any:
        from huggingface_hub import HfApi

        return HfApi(endpoint=self._endpoint)

    def _record(self, place: HubPlace, commit: str, files: Mapping[str, Path]) -> None:
        locks = self._locks()
        entry = locks.get(_key(place), {})
        if entry.get("revision") != commit:
            entry = {"revision": commit, "resolved_at": utc_now(), "files": {}}
        before = dict(entry["files"])
        for path, file in files.items():
            entry["files"].setdefault(path, {"sha256": sha256_file(file), "size_bytes": file.stat().st_size})
        if entry["files"] != before or locks.get(_key(place)) != entry:
            write_atomic(self._lock_file, json.dumps({**locks, _key(place): entry}, indent=1, sort_keys=True) + "\n")

    def _locks(self) -> dict[str, Any]:
        if not self._lock_file.is_file():
            return {}
        try:
            found: dict[str, Any] = json.loads(self._lock_file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UsageError(f"{self._lock_file}: not valid JSON ({error}); without it revisions are resolved anew") \
                from None
        return found

    def _folder(self, place: HubPlace, commit: str) -> Path:
        return self._cache / place.repo.replace("/", "--") / commit

    def _listing_file(self, place: HubPlace, commit: str) -> Path:
        return self._folder(place, commit).with_suffix(".json")


def _key(place: HubPlace) -> str:
    return f"datasets/{place.repo}@{place.revision or 'main'}"


def _is_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path and "\0" not in path


def _choose(place: HubPlace, listing: Mapping[str, Any]) -> list[str]:
    if place.path in listing:
        return [place.path]
    prefix = f"{place.path}/" if place.path else ""
    below = [path for path in sorted(listing) if path.startswith(prefix)]
    chosen = [path for path in below if _DATA.search(path) and PurePosixPath(path).name not in SILENT_NAMES]
    if not chosen:
        there = ", ".join(sorted(listing)[:20]) or "no files"
        what = f"nothing at {place.path!r}" if place.path and not below else "no file that can be read"
        raise UsageError(f"hf://datasets/{place.repo}: {what}; it holds {there}")
    return chosen


def _differs(file: Path, about: Mapping[str, Any]) -> str:
    """How a file differs from what the hub says of it; empty when it does not."""
    size = file.stat().st_size
    if about["size"] is not None and size != about["size"]:
        return f"{size:,} bytes came, {about['size']:,} are announced"
    if about["sha256"]:
        return "" if sha256_file(file) == about["sha256"] else "the sha256 differs from the announced one"
    if _COMMIT.fullmatch(about["blob"]):
        digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        with file.open("rb") as source:
            while piece := source.read(_PIECE_BYTES):
                digest.update(piece)
        return "" if digest.hexdigest() == about["blob"] else "the git hash differs from the announced one"
    return ""


def _refused(place: HubPlace, path: str, status: int, error: Exception) -> UsageError:
    from huggingface_hub.errors import RevisionNotFoundError

    where = f"hf://datasets/{place.repo}"
    if isinstance(error, RevisionNotFoundError):
        return UsageError(f"{where}: there is no revision {place.revision or 'main'!r}")
    if status in (401, 403):
        return UsageError(
            f"{where}: the hub refuses access (status {status}): the data set is gated, private, or not there. Accept "
            "its terms on its page, then give your token: `hf auth login`, or HF_TOKEN in the environment"
        )
    if status == 404:
        return UsageError(f"{where}: there is no {f'file {path!r}' if path else 'such data set'} (status 404)")
    return UsageError(f"{where}: the hub refuses the request: status {status}")


def _size(about: Mapping[str, Any]) -> str:
    size = about["size"]
    return "of unknown size" if size is None else f"{size / 1e6:,.1f} MB"
