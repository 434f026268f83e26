"""Whether two builds of a kernel are the same: their device code and their outputs. See 2026-12-h200-build.sh."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

_INSTRUCTION = re.compile(r"^\s*(?:/\*[0-9a-f]+\*/\s+(.*?;)\s*)?/\* (0x[0-9a-f]+) \*/", re.MULTILINE)
#: Names of things with internal linkage carry a hash of the file's path and text.
_INTERNAL = re.compile(
    r"_GLOBAL__N__[0-9a-f]{8}_\d+_\w*?_cu_[0-9a-f]{8}(?:_\d+)?|_INTERNAL_[0-9a-f]{8}_\d+_\w*?_cu_[0-9a-f]{8}(?:_\d+)?"
)


def _sass(library: str, path: str) -> dict[str, list[str]]:
    """Kernel name to its instructions, text and encoding, in order."""
    command = ["cuobjdump", "-sass", library]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": path})
    said = run.stdout + run.stderr
    if run.returncode != 0 and "does not contain device code" not in said:
        raise OSError(said[-300:])
    found = {}
    for part in run.stdout.split("Function : ")[1:]:
        name, _, body = part.partition("\n")
        found[_INTERNAL.sub("_INTERNAL", name.strip())] = ["  ".join(one).strip() for one in _INSTRUCTION.findall(body)]
    return found


def same_sass(ours: str, theirs: str, path: str) -> dict[str, Any]:
    """Compare every kernel of two libraries; where they differ, the first instruction that does."""
    try:
        left, right = _sass(ours, path), _sass(theirs, path)
    except OSError as error:
        return {"is": "not compared", "why": str(error)[:300]}
    if not left and not right:
        return {"is": "no device code in either"}
    common = left.keys() & right.keys()
    different = [name for name in sorted(common) if left[name] != right[name]]
    if set(left) == set(right) and not different and all(left.values()):
        return {"is": "same", "kernels": len(left), "instructions": sum(map(len, left.values()))}
    where = [
        {
            "kernel": name,
            "first": next(([a, b] for a, b in zip(left[name], right[name], strict=False) if a != b), []),
            "lengths": [len(left[name]), len(right[name])],
        }
        for name in different[:3]
    ]
    return {
        "is": "different",
        "only_ours": sorted(left.keys() - common)[:5],
        "only_theirs": sorted(right.keys() - common)[:5],
        "different": where,
    }


def outputs(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run the candidate with either module on the same inputs and state; bits first, then closeness.

    A kernel with atomics may differ from itself, so ours is run twice and that difference is recorded beside.
    """
    import torch

    from dice_core.arena.capture import fake_cpp_extension
    from dice_core.arena.worker import construct, run_source

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    problem = run_source(spec["problem"], "problem", folder)
    torch.manual_seed(7)
    inputs = [x.to(device) if isinstance(x, torch.Tensor) else x for x in problem.get_inputs()]
    found = {}
    for side in ("ours", "again", "theirs"):
        module = _load(spec["theirs" if side == "theirs" else "ours"]["artefact"])
        extension = fake_cpp_extension(lambda _request, module=module: module)
        sys.modules["torch.utils.cpp_extension"] = torch.utils.cpp_extension = extension  # type: ignore[attr-defined]
        candidate = run_source(spec["source"], f"candidate_{side}", folder)
        model = construct(candidate.ModelNew, problem.get_init_inputs(), 7, device)
        with torch.no_grad():
            torch.manual_seed(8)
            output = model(*[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
        flat = output if isinstance(output, tuple | list) else [output]
        found[side] = [x.detach().cpu() for x in flat if isinstance(x, torch.Tensor)]
        if device.type == "cuda":
            torch.cuda.synchronize()
    pairs = list(zip(found["ours"], found["theirs"], strict=True))
    twice = list(zip(found["ours"], found["again"], strict=True))

    def equal(which: list[Any]) -> bool:
        return all(
            a.dtype == b.dtype
            and a.shape == b.shape
            and torch.equal(a.nan_to_num(), b.nan_to_num())
            and torch.equal(a.isnan(), b.isnan())
            for a, b in which
        )

    def gap(which: list[Any]) -> float:
        return max(
            (float((a.double() - b.double()).abs().nan_to_num().max()) for a, b in which if a.numel()), default=0.0
        )

    if equal(pairs):
        return {"is": "same bits", "self_same": equal(twice)}
    near = not equal(twice) and gap(pairs) <= 10 * gap(twice)
    return {
        "is": "as far apart as ours from itself" if near else "different",
        "gap": gap(pairs),
        "self_gap": gap(twice),
    }


def _load(path: str) -> Any:
    import importlib.machinery
    import importlib.util

    name = Path(path).name.removesuffix(".so")
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
