"""The Prefect server of one command: the one at `PREFECT_API_URL`, or our own for as long as the command runs.

Prefect's built-in temporary server outlives a killed command and dies before it on Ctrl-C. Ours is the same server
started by us: in a session of its own, and the kernel ends it when the command dies.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from dice_core.arena.sandbox import die_with_parent
from dice_core.errors import DiceError
from dice_core.progress import Progress
from dice_core.settings import configured_prefect_server, environment_with, use_prefect_server

_START_S = 180.0
#: What Prefect's own temporary server sets: no UI, only the services that a single command needs.
_TEMPORARY = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}


@contextlib.contextmanager
def prefect_server(home: Path, progress: Progress) -> Iterator[None]:
    """Have a server for the flows in this block. Must be entered before `prefect` is imported.

    Raises:
        DiceError: the server does not start; names its log.
    """
    if configured_prefect_server():
        yield
        return
    log = home / "prefect" / "server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    use_prefect_server(url)
    argv = [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app",
            "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    with log.open("ab") as out:
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                                  env=environment_with(_TEMPORARY), preexec_fn=die_with_parent)
        try:
            _wait(server, f"{url}/health", log, progress)
            yield
        finally:
            use_prefect_server(None)
            server.terminate()
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait(server: subprocess.Popen[bytes], health: str, log: Path, progress: Progress) -> None:
    started = time.monotonic()
    progress("prefect", 0, 1, "starting the server")
    while server.poll() is None and time.monotonic() - started < _START_S:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(health, timeout=5) as answer:
            if answer.status == 200:
                progress("prefect", 1, 1, "server is up")
                return
        time.sleep(0.1)
    raise DiceError(f"the Prefect server did not start within {_START_S:.0f} s; its log is {log}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
