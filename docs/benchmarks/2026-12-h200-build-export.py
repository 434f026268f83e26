"""Make the folder of the build benchmark on the host. See 2026-12-h200-build.sh.

Captures every candidate inside the sandbox, picks the kernels to compare, and lays them beside the code that builds
them. `--tools` names a folder with cuobjdump and nvdisasm, for a machine that lacks them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import dice_core

HERE = Path(__file__).resolve().parent
NAME = "2026-12-h200-build"
INPUT_BYTES = 512 << 20  #: kernels whose problem has larger inputs are not picked, so that outputs can be compared


def export(options: argparse.Namespace) -> None:
    """Capture every candidate inside the sandbox, pick the kernels to compare, write the folder."""
    box = options.box
    box.mkdir(parents=True)
    candidates = _candidates(options)
    captured = _captured(candidates)
    failures = Counter(_cause(one["error"]) for one in captured if not one["requests"])
    asking = [one for one in captured if one["requests"]]
    random.Random(0).shuffle(asking)
    single = [one for one in asking if len(one["requests"]) == 1 and not one["requests"][0]["separate_sources"]]
    picked: list[dict[str, Any]] = []
    for origin, share in (("dice", options.count // 2), ("llm", options.count - options.count // 2)):
        fitting = (
            one for one in single if one["origin"] == origin and one["good"] and _input_bytes(one) <= INPUT_BYTES
        )
        picked += [one for one, _ in zip(fitting, range(share), strict=False)]
    _write_lines(box / "kernels.jsonl", picked)
    distinct = {
        json.dumps({k: v for k, v in r.items() if k != "name"}, sort_keys=True): (one["id"], r)
        for one in asking
        if one["good"]
        for r in one["requests"]
    }
    _write_lines(box / "all.jsonl", [{"id": name, "request": request} for name, request in distinct.values()])
    facts = {
        "candidates": len(candidates),
        "asking": len(asking),
        "capture_failures": dict(failures),
        "requests_that_compiled_elsewhere": len(distinct),
        "picked": len(picked),
    }
    (box / "facts.json").write_text(json.dumps(facts, indent=1))
    shutil.copytree(Path(dice_core.__file__).parent, box / "dice_core", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("run", "proofs"):
        shutil.copy2(HERE / f"{NAME}-{name}.py", box / f"{name}.py")
    (box / "bin").mkdir()
    tools = [Path(sys.executable).parent / "ninja"]
    tools += [options.tools / name for name in ("cuobjdump", "nvdisasm")] if options.tools else []
    for tool in tools:
        shutil.copy2(tool, box / "bin" / tool.name)
    print(json.dumps(facts, indent=1))


def _candidates(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    if options.dice:
        rows += [
            {
                "id": f"dice-{one['id']}",
                "origin": "dice",
                "source": one["cuda_code"],
                "good": True,
                "problem": one["pytorch_code"],
            }
            for one in json.loads(options.dice.read_text())
        ]
    if options.llm:
        import pyarrow.parquet as pq

        def read(path: Path) -> list[dict[str, Any]]:
            table: list[dict[str, Any]] = pq.ParquetFile(path).read(use_threads=False).to_pylist()
            return table

        problems = {(one["level"], one["problem_id"]): one["code"] for one in read(options.problems)}
        rows += [
            {
                "id": f"{one['run']}-{one['level']}-{one['problem_id']}-{one['sample_id']}",
                "origin": "llm",
                "source": one["kernel_code"] or "",
                "good": bool(one["claimed_compiled"]),
                "problem": problems.get((one["level"], one["problem_id"]), ""),
            }
            for one in read(options.llm)
        ]
    return list({one["source"]: one for one in reversed(rows)}.values())[::-1]


def _captured(candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from dice_core.arena.capture import BuildRequest
    from dice_core.arena.children import Zygote
    from dice_core.arena.sandbox import WORKER_UID, Limits
    from dice_core.errors import ArenaError

    scratch = Path(tempfile.mkdtemp())
    scratch.chmod(0o711)
    zygote = Zygote(scratch, {"PATH": os.defpath, "OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"})
    done = []
    try:
        for one in candidates:
            child = zygote.spawn("worker", Limits("landlock", 8 << 30, 60, 1 << 26, 256, 256, WORKER_UID))
            try:
                told = child.ask("capture", {"source": one["source"]}, timeout_s=60, stage="capture")
                requests = [BuildRequest.from_json(item).to_json() for item in told.items("requests", 100)]
                done.append({**one, "requests": requests, "error": told.text("error")})
            except (ArenaError, ValueError) as error:
                done.append({**one, "requests": [], "error": f"{type(error).__name__}: {error}"})
            finally:
                child.end()
    finally:
        zygote.close()
        shutil.rmtree(scratch, ignore_errors=True)
    return done


def _cause(error: str) -> str:
    """The exception's name at the end of a traceback."""
    names = re.findall(r"^([A-Za-z_.]*(?:Error|Exception|Interrupt|Exit))\b", error, re.MULTILINE)
    return names[-1] if names else "asks for no extension" if not error else "other"


def _input_bytes(one: dict[str, Any]) -> int:
    """Bytes of the problem's inputs, without making them; huge when that cannot be told."""
    code = (
        "import sys, torch; text = sys.stdin.read(); space = {'__name__': 'm'}; exec(text, space)\n"
        "with torch.device('meta'): found = space['get_inputs']()\n"
        "print(sum(x.numel() * x.element_size() for x in found if isinstance(x, torch.Tensor)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], input=one["problem"], capture_output=True, text=True, timeout=120, check=False
    )
    return int(run.stdout.strip().rpartition("\n")[2]) if run.returncode == 0 and run.stdout.strip() else 1 << 60


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("box", type=Path)
    for name in ("--dice", "--llm", "--problems", "--tools"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--count", type=int, default=52)
    export(parser.parse_args())


if __name__ == "__main__":
    main()
