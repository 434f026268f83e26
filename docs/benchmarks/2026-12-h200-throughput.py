"""The same kernels through KernelBench's own batch evaluator and through DICE, on one machine, stage by stage.

    prepare ITEMS.json KERNELBENCH_CHECKOUT BOX     on the host: everything that the GPU box needs, in one folder
    kernelbench BOX [--seconds 520]                 on the GPU box; resumable, run it until it says "finished"
    dice BOX [--seconds 520]                        on the GPU box; the same
    table BOX                                       on the host, after `dice bundle import`: the tables as Markdown

KernelBench's side runs KernelBench's code as it is (main 423217d): `kernelbench.compile.batch_compile` with its pool of
20 CPU workers, then `batch_eval` of `scripts/eval_from_generations.py`, which takes as many kernels at a time as there
are GPUs, each in a fresh spawned pool. Handing `batch_eval` one kernel at a time therefore changes nothing but that we
can stop in between. The build is handed over in portions of 40 (two for each worker), for the same reason. Packages
that this path imports and never uses (pydra, modal, openai, litellm, dotenv …) are stood in for where they are missing.

Nothing runs beside either side. Wall seconds are the sum over calls, CPU seconds those of all finished child processes.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

RUN, LEVEL = "dice66", 0
CORRECT_TRIALS, PERF_TRIALS, TIMEOUT_S, CPU_WORKERS, PORTION = 5, 100, 180, 20, 40
_UNUSED = ("pydra", "modal", "modal.experimental", "dotenv", "openai", "litellm", "requests", "tqdm", "datasets")


# ---- stand-ins for packages that are imported and not used -----------------------------------------------------------


class _Anything:
    """Takes every attribute, call and decoration."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorated = len(args) == 1 and not kwargs and (isinstance(args[0], type) or callable(args[0]))
        return args[0] if decorated and not isinstance(args[0], _Anything) else self


class _Bar:
    """A progress bar that shows nothing; iterates over what it is given."""

    def __init__(self, iterable: Any = (), **_: Any) -> None:
        self._iterable = iterable

    def __iter__(self) -> Any:
        return iter(self._iterable)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, _: int = 1) -> None:
        """Nothing to show."""


class _Config:
    """pydra's Config as far as it is used: attributes, and these as a dictionary."""

    def to_dict(self) -> dict[str, Any]:
        """All attributes."""
        return dict(vars(self))


class _Model:
    """pydantic's BaseModel as far as it is used: keyword arguments over class defaults."""

    def __init__(self, **given: Any) -> None:
        for name in type(self).__annotations__:
            setattr(self, name, given[name] if name in given else copy.deepcopy(getattr(type(self), name)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"


def _stand_in() -> None:
    """Put stand-ins where a package is missing; a package that is there is used."""
    for name in (*_UNUSED, "pydantic"):
        parent = name.partition(".")[0]
        if name in sys.modules or (parent not in sys.modules and importlib.util.find_spec(parent) is not None):
            continue
        module = types.ModuleType(name)
        module.__getattr__ = _Anything().__getattr__  # type: ignore[method-assign]
        module.__path__ = []  # type: ignore[attr-defined]
        sys.modules[name] = module
    for name, attribute, value in (("tqdm", "tqdm", _Bar), ("pydra", "Config", _Config), ("pydra", "REQUIRED", None),
                                   ("pydantic", "BaseModel", _Model), ("dotenv", "load_dotenv", lambda *_: None)):
        if name in sys.modules and not getattr(sys.modules[name], "__file__", None):
            setattr(sys.modules[name], attribute, value)


class Tasks:
    """KernelBench's dataset interface over our tasks file; travels to its workers."""

    level = LEVEL

    def __init__(self, path: Path) -> None:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self._rows = {row["problem_id"]: row for row in rows}

    def get_problem_ids(self) -> list[int]:
        """All numbers, sorted."""
        return sorted(self._rows)

    def get_problem_by_id(self, number: int) -> Any:
        """One problem, with the attributes that the evaluator reads."""
        row = self._rows[number]
        return types.SimpleNamespace(problem_id=number, name=row["name"], code=row["code"], level=LEVEL, path=None,
                                     metadata={})


def _load_kernelbench(checkout: Path) -> tuple[Any, Any]:
    """KernelBench's batch evaluator and its compile module. In spawned workers this file is imported first, too."""
    _stand_in()
    for folder in (checkout / "src", checkout / "scripts"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    import eval_from_generations
    from kernelbench import compile as kernelbench_compile

    return eval_from_generations, kernelbench_compile


if __name__ == "__mp_main__":
    _stand_in()


# ---- the two sides -------------------------------------------------------------------------------------------------


def kernelbench_side(box: Path, seconds: float) -> int:
    """Build in portions, then evaluate one kernel after another, until all is done or the time is up."""
    begin = time.monotonic()
    os.environ["PATH"] = f"{box / 'bin'}{os.pathsep}{os.environ['PATH']}"
    if "CUDA_HOME" not in os.environ and Path("/usr/local/cuda").is_dir():
        os.environ["CUDA_HOME"] = "/usr/local/cuda"
    batch, builder = _load_kernelbench(box / "KernelBench")
    import multiprocessing

    import torch
    from kernelbench.utils import set_gpu_arch

    if multiprocessing.get_start_method(allow_none=True) is None:
        multiprocessing.set_start_method("spawn")
    major, minor = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
    ampere = "Ada" if minor == 9 else "Ampere"
    set_gpu_arch([{7: "Turing", 8: ampere, 9: "Hopper"}.get(major, "Blackwell")])
    tasks, log = Tasks(box / "tasks.jsonl"), _Log(box / "kernelbench.jsonl")
    config = batch.EvalConfig()
    for name, value in {
        "run_name": RUN, "dataset_src": "local", "level": LEVEL, "runs_dir": str(box / "runs"), "timeout": TIMEOUT_S,
        "num_correct_trials": CORRECT_TRIALS, "num_perf_trials": PERF_TRIALS, "build_cache": True,
        "num_cpu_workers": CPU_WORKERS, "kernel_eval_build_dir": str(box / "kernelbench-cache"), "num_gpu_devices": 1,
    }.items():
        setattr(config, name, value)
    results = box / "runs" / RUN / "eval_results.json"
    work = [(number, 0) for number in tasks.get_problem_ids()]
    log.add("start", begin, 0.0, [])  # imports, like any start of its script
    built = set(log.numbers("build"))
    while pending := [one for one in work if one[0] not in built][:PORTION]:
        if built and time.monotonic() - begin > 0.4 * seconds:
            return _unfinished(f"{len(built)} of {len(work)} built")
        with log.stage("build", [number for number, _ in pending]):
            builder.batch_compile(pending, config.to_dict())
        built |= {number for number, _ in pending}
    if not torch.cuda.is_available():
        print("built; there is no GPU here to evaluate on")
        return 7
    for number, sample in work:
        if batch.check_if_eval_exists_local(number, sample, str(results)):
            continue
        if time.monotonic() - begin > seconds - 60:
            return _unfinished("evaluating")
        with log.stage("evaluate", [number]):
            batch.batch_eval([(number, sample)], config, tasks, str(box / "runs" / RUN), str(results))
    print("finished")
    return 0


def dice_side(box: Path, seconds: float) -> int:
    """`python3 run.py` in the bundle, ended when the time is up; what is measured is on disk by then."""
    begin, log, folder = time.monotonic(), _Log(box / "dice.jsonl"), box / "dice"
    wanted = len(json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))["members"])
    before = set(folder.glob("attempts/att_*.parquet"))
    started_at = time.time()
    process = subprocess.Popen([sys.executable, str(folder / "run.py")], start_new_session=True)
    while process.poll() is None and time.monotonic() - begin < seconds:
        time.sleep(0.2)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    made = sorted(set(folder.glob("attempts/att_*.parquet")) - before, key=lambda path: path.stat().st_mtime)
    first_s = made[0].stat().st_mtime - started_at if made else time.monotonic() - begin
    log.add("run", begin, _cpu_s(), [], first_verdict_s=first_s, made=len(made), status=process.returncode)
    done = len(before) + len(made)
    if done < wanted:
        return _unfinished(f"{done} of {wanted} measured")
    print("finished")
    return 0


class _Log:
    """One JSON line for each stage that ended."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, stage: str, begin: float, cpu_s: float, numbers: list[int], **more: Any) -> None:
        """Note a stage that began at `begin` (monotonic seconds)."""
        line = {"stage": stage, "wall_s": time.monotonic() - begin, "cpu_s": cpu_s, "numbers": numbers, **more}
        with self._path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")

    def stage(self, name: str, numbers: list[int]) -> _Stage:
        """A stage to be timed."""
        return _Stage(self, name, numbers)

    def rows(self) -> list[dict[str, Any]]:
        """All lines."""
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()] if (
            self._path.exists()) else []

    def numbers(self, stage: str) -> list[int]:
        """Problems that a stage is done with."""
        return [number for row in self.rows() if row["stage"] == stage for number in row["numbers"]]


class _Stage:
    def __init__(self, log: _Log, name: str, numbers: list[int]) -> None:
        self._log, self._name, self._numbers = log, name, numbers

    def __enter__(self) -> None:
        self._begin, self._cpu_s = time.monotonic(), _cpu_s()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._log.add(self._name, self._begin, _cpu_s() - self._cpu_s, self._numbers)


def _cpu_s() -> float:
    """CPU seconds of this process and of all descendants that were waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _unfinished(words: str) -> int:
    print(f"time is up ({words}); run the same command again")
    return 5


# ---- the host ------------------------------------------------------------------------------------------------------


def prepare(items: Path, checkout: Path, box: Path) -> int:
    """Tasks and kernels in KernelBench's form, and a copy of the parts of KernelBench that its evaluator needs."""
    rows = json.loads(items.read_text(encoding="utf-8"))
    run = box / "runs" / RUN
    run.mkdir(parents=True)
    tasks = []
    for number, row in enumerate(rows, 1):
        name = f"{number}_{row['id']}"
        tasks.append({"level": LEVEL, "problem_id": number, "name": name, "code": row["pytorch_code"]})
        (run / f"level_{LEVEL}_problem_{number}_sample_0_kernel.py").write_text(row["cuda_code"], encoding="utf-8")
    (box / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8")
    for part in ("src", "scripts"):
        shutil.copytree(checkout / part, box / "KernelBench" / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(checkout / "LICENSE", box / "KernelBench" / "LICENSE")
    shutil.copy2(__file__, box / "measure.py")
    ninja = shutil.which("ninja")
    if ninja is not None:  # torch's load_inline needs it, and a GPU box may lack it
        (box / "bin").mkdir()
        shutil.copy2(ninja, box / "bin" / "ninja")
    print(f"{len(tasks)} kernels in {run}")
    return 0


def table(box: Path, verdicts: Path) -> int:
    """Markdown: cost by stage, and verdicts row by row. `verdicts`: JSON rows of `dice query --json`."""
    theirs = _Log(box / "kernelbench.jsonl").rows()
    ours = _Log(box / "dice.jsonl").rows()
    mine = {row["number"]: row for row in json.loads(verdicts.read_text(encoding="utf-8"))}
    native = {int(key): value[0] for key, value in json.loads(
        (box / "runs" / RUN / "eval_results.json").read_text(encoding="utf-8")).items()}
    count = len(native)
    lines = [("KernelBench", stage, [row for row in theirs if row["stage"] == stage])
             for stage in ("start", "build", "evaluate")]
    lines += [("KernelBench", "all", theirs), ("DICE", "all", ours)]
    print("| evaluator | stage | kernels | wall s | CPU s | kernels/hour |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for name, stage, rows in lines:
        wall, cpu = sum(row["wall_s"] for row in rows), sum(row["cpu_s"] for row in rows)
        print(f"| {name} | {stage} | {count} | {wall:.1f} | {cpu:.1f} | {count / wall * 3600 if wall else 0:.0f} |")
    first = sum(row["first_verdict_s"] for row in ours)
    print(f"\nDICE compiles everything before its first verdict: {first:.1f} s of its wall time until then.")
    parts = {key: sum(row[key] for row in mine.values()) for key in ("build_s", "check_s", "time_s")}
    print("Inside DICE, summed over kernels (builds run in parallel): "
          + ", ".join(f"{name.removesuffix('_s')} {value:.1f} s" for name, value in parts.items()))
    calls = sorted(row["n_samples"] for row in mine.values() if row["n_samples"])
    if calls:
        print(f"\nTimed samples per kernel, both sides: KernelBench {2 * PERF_TRIALS}, DICE median "
              f"{calls[len(calls) // 2]} (the short ones hold many calls); correctness trials: "
              f"KernelBench {CORRECT_TRIALS}, DICE "
              f"{max(row['n_trials'] or 0 for row in mine.values())}")
    print("\n| item | KernelBench | DICE | KernelBench's comparison in DICE | same | DICE's reason | "
          "KernelBench's words |"
          "\n| --- | --- | --- | --- | --- | --- | --- |")
    same = 0
    for number in sorted(native):
        entry, row = native[number], mine[number]
        word = "correct" if entry["correctness"] else "wrong" if entry["compiled"] else "not compiled"
        equal = entry["correctness"] == (row["verdict"] == "CORRECT")
        same += equal
        if not equal:
            words = re.sub(r"[|\s]+", " ", json.dumps({key: value for key, value in entry["metadata"].items()
                                                        if key not in ("hardware", "device")}))[:160]
            print(f"| {row['problem_name']} | {word} | {row['verdict']} | {row['kernelbench_correct']} | no | "
                  f"{re.sub(r'[|]', ' ', row['reason'] or '')[:160]} | {words} |")
    print(f"\nThe other {same} of {count} have the same verdict.")
    return 0


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("prepare", "kernelbench", "dice", "table"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=520.0)
    options = parser.parse_args()
    paths = [path.resolve() for path in options.paths]
    if options.action == "prepare":
        return prepare(*paths)
    if options.action == "table":
        return table(*paths)
    return (kernelbench_side if options.action == "kernelbench" else dice_side)(paths[0], options.seconds)


if __name__ == "__main__":
    sys.exit(main())
