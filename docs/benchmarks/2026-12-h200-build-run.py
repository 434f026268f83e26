"""The build farm against torch's `load_inline`, side by side on the same real kernels. See 2026-12-h200-build.sh.

    python3 run.py [--seconds S] [--workers N] [--arch sm_90] [--no-outputs]

It goes on where it stopped. Each kernel is built by both sides one after the other in the same worker, so that both
see the same load: ours with a cold cache (the light kit is made before and its cost is reported apart), torch with a
cold TORCH_EXTENSIONS_DIR. CPU seconds are those of the building process and its children, without the import of torch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from proofs import outputs, same_sass  # noqa: E402 - beside this file in the folder that was exported


def run(options: argparse.Namespace) -> None:
    """Build, compare, and append one line to results.jsonl for each kernel; then build all candidates with ours."""
    end = time.monotonic() + options.seconds
    work = HERE / "work"
    work.mkdir(exist_ok=True)
    environment = _environment(options)
    kit = _child("kit", {"arch": options.arch}, work, environment["variables"], 120)  # nothing to do where it is
    if not (HERE / "environment.json").exists():
        (HERE / "environment.json").write_text(json.dumps({**environment["facts"], "kit": kit}, indent=1))
    kernels = _read_lines(HERE / "kernels.jsonl")
    done = {one["id"] for one in _read_lines(HERE / "results.jsonl")}
    todo = [one for one in kernels if one["id"] not in done]
    with ThreadPoolExecutor(options.workers) as pool, (HERE / "results.jsonl").open("a") as out:
        jobs = [pool.submit(_compare, one, options, work, environment["variables"], end) for one in todo]
        for number, job in enumerate(as_completed(jobs), len(done) + 1):
            result = job.result()
            if result is not None:
                out.write(json.dumps(result) + "\n")
                out.flush()
                print(
                    f"{number}/{len(kernels)}  {result['id']:<40} {result['ours']['tier']:<6}"
                    f"{result['ours']['cpu_s']:7.1f} s {result['theirs']['cpu_s']:7.1f} s  "
                    f"sass {result['sass']['is']}  outputs {result['outputs']['is']}",
                    flush=True,
                )
    left = end - time.monotonic()
    if len(_read_lines(HERE / "results.jsonl")) == len(kernels) and left > 30:
        _child("all", {"arch": options.arch}, work, environment["variables"], left - 10)
    finished = len(_read_lines(HERE / "results.jsonl"))
    print(f"{finished} of {len(kernels)} kernels compared" + ("" if (HERE / "all.json").exists() else "; run again"))


def _environment(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from dice_core.arena.toolchain import DEFAULT_PATH, find_toolchain

    toolchain = find_toolchain()
    folders = [HERE / "bin", Path(sys.executable).parent]
    folders += [Path(p) / "triton" / "backends" / "nvidia" / "bin" for p in sys.path if p]
    path = os.pathsep.join([*map(str, folders), toolchain.path, DEFAULT_PATH])
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    facts = {
        "gpu": gpu,
        "torch": toolchain.torch_version,
        "nvcc": toolchain.nvcc_version,
        "cxx": toolchain.cxx_version,
        "python": toolchain.python_version,
        "cores": os.cpu_count(),
        "workers": options.workers,
        "arch": options.arch,
    }
    number = options.arch.removeprefix("sm_")
    keep = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES") if name in os.environ}
    return {
        "facts": facts,
        "variables": {
            **keep,
            "PATH": path,
            "HOME": str(HERE),
            "CUDA_HOME": str(toolchain.cuda_home or ""),
            "OMP_NUM_THREADS": "1",
            "TORCH_CUDA_ARCH_LIST": f"{number[:-1]}.{number[-1]}",
        },
    }


def _compare(
    one: dict[str, Any], options: argparse.Namespace, work: Path, variables: dict[str, str], end: float
) -> dict[str, Any] | None:
    """Both builds of one kernel and what came of them; None when the time is up (it is done in the next run)."""
    if time.monotonic() > end - 150:
        return None
    folder = Path(tempfile.mkdtemp(dir=work))
    spec = {"arch": options.arch, "request": one["requests"][0]}
    ours = _child("ours", spec, folder, variables, 200)
    left = end - time.monotonic()
    theirs = _child("theirs", spec, folder, {**variables, "TORCH_EXTENSIONS_DIR": str(folder / "torch")}, left)
    if theirs["status"] == "timeout" and time.monotonic() > end - 1:
        if ours.get("artefact"):  # so that ours starts cold again too
            shutil.rmtree(Path(ours["artefact"]).parent, ignore_errors=True)
        return None
    both = ours["status"] == "ok" and theirs["status"] == "ok"
    sass = same_sass(ours["artefact"], theirs["artefact"], variables["PATH"]) if both else {"is": "not compared"}
    seen: dict[str, Any] = {"is": "not compared"}
    if both and not options.no_outputs:
        spec |= {"source": one["source"], "problem": one["problem"], "ours": ours, "theirs": theirs}
        seen = _child("outputs", spec, folder, variables, max(5.0, min(120.0, end - time.monotonic())))
        seen.setdefault("is", seen.get("status", "failed"))
    shutil.rmtree(folder, ignore_errors=True)
    return {"id": one["id"], "origin": one["origin"], "ours": ours, "theirs": theirs, "sass": sass, "outputs": seen}


def _child(
    mode: str, spec: dict[str, Any], folder: Path, variables: dict[str, str], timeout_s: float
) -> dict[str, Any]:
    """Run a mode of this script in a process group of its own; its answer, or how it ended."""
    (folder / f"{mode}.spec").write_text(json.dumps(spec))
    answer = folder / f"{mode}.answer"
    with (folder / f"{mode}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, "--child", mode, str(folder)],
            stdout=log,
            stderr=log,
            env=variables,
            start_new_session=True,
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            time.sleep(0.5)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return {"status": "timeout", "tier": "", "cpu_s": 0.0, "wall_s": timeout_s}
    if process.returncode != 0 or not answer.exists():
        text = (folder / f"{mode}.log").read_text(errors="replace")
        return {
            "status": f"failed ({process.returncode})",
            "tier": "",
            "cpu_s": 0.0,
            "wall_s": 0.0,
            "log": text[-2000:],
        }
    result: dict[str, Any] = json.loads(answer.read_text())
    return result


def child(mode: str, folder: Path) -> None:
    """The body of `_child`."""
    spec = json.loads((folder / f"{mode}.spec").read_text())
    answer = {"ours": _build_ours, "theirs": _build_theirs, "kit": _make_kit, "outputs": outputs, "all": _build_all}[
        mode
    ]
    (folder / f"{mode}.answer").write_text(json.dumps(answer(spec, folder)))


def _cpu_s() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def _farm(spec: dict[str, Any], jobs: int | None = 1) -> Any:
    from dice_core.arena.build import BuildFarm

    return BuildFarm(HERE / "cache", device="cuda", arch=spec["arch"], jobs=jobs, base_path=os.environ["PATH"])


def _make_kit(spec: dict[str, Any], folder: Path) -> dict[str, float]:
    from dice_core.arena.light_kit import make_aten_binding, make_light_kit

    farm = _farm(spec)
    cpu_s = _cpu_s()
    kit = make_light_kit(farm.cache_dir, farm.toolchain)
    light_s = _cpu_s() - cpu_s
    make_aten_binding(kit, farm.cache_dir, farm.toolchain)
    return {"light_cpu_s": light_s, "aten_cpu_s": _cpu_s() - cpu_s - light_s}


def _build_ours(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    from dice_core.arena.capture import BuildRequest

    farm = _farm(spec)
    cpu_s, start = _cpu_s(), time.monotonic()
    result = farm.build(BuildRequest.from_json(spec["request"]))
    return {
        "status": result.status,
        "tier": result.tier,
        "artefact": result.artefact,
        "cached": result.cached,
        "cpu_s": _cpu_s() - cpu_s,
        "wall_s": time.monotonic() - start,
        "log": result.log[-2000:],
        "result": result.to_json(),
    }


def _build_theirs(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    from torch.utils import cpp_extension

    if cpp_extension.CUDA_HOME is None:  # torch without CUDA, where this script is only tried out
        cpp_extension.CUDA_HOME = os.environ["CUDA_HOME"]
    request = spec["request"]
    arguments = {
        key: list(request[key])
        for key in (
            "cpp_sources",
            "cuda_sources",
            "extra_cflags",
            "extra_cuda_cflags",
            "extra_ldflags",
            "extra_include_paths",
        )
    }
    cpu_s, start, log = _cpu_s(), time.monotonic(), ""
    try:
        cpp_extension.load_inline(
            "theirs",
            functions=dict(request["functions"]) or None,
            with_cuda=request["with_cuda"],
            no_implicit_headers=not request["implicit_headers"],
            **arguments,
        )
        status = "ok"
    except Exception as error:
        status, log = "compile_error", str(error)[-2000:]
    return {
        "status": status,
        "tier": "",
        "cpu_s": _cpu_s() - cpu_s,
        "wall_s": time.monotonic() - start,
        "log": log,
        "artefact": str(folder / "torch" / "theirs" / "theirs.so"),
    }


def _build_all(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    from dice_core.arena.capture import BuildRequest

    lines = _read_lines(HERE / "all.jsonl")
    names = {BuildRequest.from_json(one["request"]).key: one["id"] for one in lines}
    cpu_s, start, built = _cpu_s(), time.monotonic(), 0
    known = {one["id"] for one in _read_lines(HERE / "all-results.jsonl")}
    with (HERE / "all-results.jsonl").open("a") as out:

        def note(result: Any) -> None:
            nonlocal built
            built += not result.cached
            if names[result.request_key] not in known:
                out.write(
                    json.dumps(
                        {
                            "id": names[result.request_key],
                            "status": result.status,
                            "tier": result.tier,
                            "cpu_s": result.cpu_seconds,
                            "cached": result.cached,
                            "log": result.log[-500:],
                        }
                    )
                    + "\n"
                )
                out.flush()

        _farm(spec, jobs=None).build_many([BuildRequest.from_json(one["request"]) for one in lines], on_done=note)
    answer = {"requests": len(lines), "built": built, "cpu_s": _cpu_s() - cpu_s, "wall_s": time.monotonic() - start}
    (HERE / "all.json").write_text(json.dumps(answer))
    return answer


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--no-outputs", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("MODE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]))
    else:
        run(options)


if __name__ == "__main__":
    main()
