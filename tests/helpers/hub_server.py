"""A small server on this machine that speaks as much of the hub's API as fetching a data set needs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class FakeHub:
    """Data sets by name and revision, and faults that the next requests meet.

    `faults` are taken one a request whose path contains the first word: `(word, what)`, where `what` is a status, or
    `cut` (half of the file, then the connection ends), or `garbage` (as many other bytes).
    """

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], dict[str, bytes]] = {}  # (repo, commit) -> path -> content
        self.names: dict[tuple[str, str], str] = {}  # (repo, branch) -> commit
        self.faults: list[tuple[str, int | str]] = []
        self.requests: list[tuple[str, str]] = []  # (path, Range header)
        self.url = ""

    def publish(self, repo: str, files: dict[str, bytes], branch: str = "main") -> str:
        """A new commit on a branch; returns it."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.files[repo, commit] = files
        self.names[repo, branch] = commit
        return commit

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(handler.path).path)
        self.requests.append((path, handler.headers.get("Range", "")))
        fault = self.faults.pop(0)[1] if self.faults and self.faults[0][0] in path else ""
        if isinstance(fault, int):
            return _send(handler, fault, b"{}", {"X-Error-Code": "GatedRepo"} if fault in (401, 403) else {})
        if match := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/revision/(.+)", path):
            return self._info(handler, match[1], match[2])
        if match := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._file(handler, match[1], match[2], match[3], fault)
        return _send(handler, 404, b"{}", {})

    def _info(self, handler: BaseHTTPRequestHandler, repo: str, revision: str) -> None:
        commit = self.names.get((repo, revision), revision)
        files = self.files.get((repo, commit))
        if files is None:
            known = any(name == repo for name, _ in self.files)
            code = "RevisionNotFound" if known else "RepoNotFound"
            return _send(handler, 404, b"{}", {"X-Error-Code": code})
        siblings = []
        for number, (path, content) in enumerate(sorted(files.items())):
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            lfs = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1}
            siblings.append({"rfilename": path, "size": len(content), "blobId": blob,
                             **({"lfs": lfs} if number % 2 == 0 else {})})
        body = json.dumps({"id": repo, "sha": commit, "siblings": siblings}).encode()
        return _send(handler, 200, body, {"Content-Type": "application/json"})

    def _file(self, handler: BaseHTTPRequestHandler, repo: str, commit: str, path: str, fault: str) -> None:
        content = self.files.get((repo, commit), {}).get(path)
        if content is None:
            return _send(handler, 404, b"", {"X-Error-Code": "EntryNotFound"})
        if fault == "garbage":
            content = bytes(len(content))
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        rest = content[start:]
        extra = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if asked else {}
        return _send(handler, 206 if asked else 200, rest, extra, sent=len(rest) // 2 if fault == "cut" else None)


def _send(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str], sent: int | None = None
) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body[:sent])
    handler.close_connection = True


@contextlib.contextmanager
def serve() -> Iterator[FakeHub]:
    """A hub on a free port."""
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
