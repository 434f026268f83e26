"""Developer command: what does the build farm make of this candidate file?

    python -m dice_core.arena.build FILE.py [--device cpu|cuda] [--arch sm_90] [--cache DIR] [--tiers light,aten,full]

The file is executed in a child process with captured build requests, without isolation: for one's own kernels only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from dice_core.arena.build import BuildFarm
from dice_core.arena.capture import BuildRequest

_CAPTURE = """
import json, runpy, sys
import torch, torch.utils
from dice_core.arena.capture import CapturePlaceholder, fake_cpp_extension
requests = []
def take(request):
    requests.append(request.to_json())
    return CapturePlaceholder(request.name)
module = fake_cpp_extension(take)
sys.modules["torch.utils.cpp_extension"] = module
torch.utils.cpp_extension = module
runpy.run_path(sys.argv[1], run_name="candidate")
with open(sys.argv[2], "w") as out:
    json.dump(requests, out)
"""


def capture_file(path: Path, timeout_s: float = 120.0) -> list[BuildRequest]:
    """Execute a candidate file in a child process and return what it asks to be compiled.

    Raises:
        RuntimeError: the file raised; the text is its traceback.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "requests.json"
        run = subprocess.run(
            [sys.executable, "-c", _CAPTURE, str(path), str(out)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=Path(__file__).resolve().parents[2],
        )
        if run.returncode != 0:
            raise RuntimeError(run.stderr)
        return [BuildRequest.from_json(item) for item in json.loads(out.read_text())]


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns 0 when everything was built, 1 when the file raised, 3 when a build failed."""
    parser = argparse.ArgumentParser(prog="python -m dice_core.arena.build", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="+")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--arch", default=None)
    parser.add_argument("--cache", type=Path, default=Path(".dice/cache/build"))
    parser.add_argument("--tiers", default="light,aten,full")
    parser.add_argument("--jobs", type=int, default=None)
    options = parser.parse_args(argv)
    farm = BuildFarm(
        options.cache,
        device=options.device,
        arch=options.arch,
        jobs=options.jobs,
        tiers=tuple(options.tiers.split(",")),
    )
    code = 0
    for path in options.file:
        try:
            requests = capture_file(path.resolve())
        except RuntimeError as error:
            print(f"{path}: the file raised\n{error}")
            code = max(code, 1)
            continue
        if not requests:
            print(f"{path}: asks for no extension")
        for request in requests:
            result = farm.build(request)
            print(
                f"{path}: {request.name}: {result.status} tier={result.tier or '-'} {result.seconds:.1f} s "
                f"(cpu {result.cpu_seconds:.1f} s){' cached' if result.cached else ''} {result.artefact}"
            )
            if result.dropped_flags:
                print(f"  dropped flags: {' '.join(result.dropped_flags)}")
            if not result.ok:
                print(result.log)
                code = max(code, 3)
    return code
