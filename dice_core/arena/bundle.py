"""A bundle: a folder that carries work to a GPU box which has only torch, numpy and pyarrow, and brings results back.

    bundle/
      manifest.json     what is in it, with the sha256 of every file
      evaluation.json   problems, kernels, plan, device
      dice_core/        the part of DICE that runs there (no DuckDB, no Prefect, no MLflow)
      run.py            `python3 run.py`: measures, resumable, one attempt file for each attempt
      attempts/         results; `dice bundle import` brings them into the lake

The box needs nothing installed but the above and a compiler; nothing of the bundle reaches the network.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import dice_core
from dice_core.arena.evaluate import ArenaConfig, EvaluationSummary, evaluate
from dice_core.arena.sandbox import LEVELS, isolation_level
from dice_core.bench.evaluation import Evaluation
from dice_core.environment import capture, code_state, resolve_device
from dice_core.errors import AuditError, SourceError, UsageError
from dice_core.files import sha256_file, write_atomic
from dice_core.lake.attempts import AttemptFile, finished_attempts, read_attempt
from dice_core.records import utc_now
from dice_core.settings import compiler_path

_FORMAT = 1
_PACKAGE = Path(dice_core.__file__).parent
#: What travels: each of these imports with the standard library, torch, numpy and pyarrow alone.
_CARRIED = ("__init__.py", "errors.py", "files.py", "records.py", "schemas.py", "environment.py", "settings.py",
            "arena", "bench", "lake/__init__.py", "lake/attempts.py")

_RUN_PY = '''"""Measure this bundle on this machine. Stop it at any time; started again, it goes on where it was."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from dice_core.arena.bundle import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main([str(HERE), *sys.argv[1:]]))
'''


@dataclass(frozen=True)
class Bundle:
    """An opened bundle."""

    folder: Path
    evaluation: Evaluation
    code: dict[str, str]  #: commit, uncommitted changes and lock of the checkout that it was exported from

    @property
    def attempts_dir(self) -> Path:
        """Where results are."""
        return self.folder / "attempts"


def export_bundle(evaluation: Evaluation, folder: Path) -> Path:
    """Write a bundle folder.

    Raises:
        UsageError: `folder` exists and is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder}: exists and is not empty; name a new folder for the bundle")
    folder.mkdir(parents=True, exist_ok=True)
    for name in _CARRIED:
        source, target = _PACKAGE / name, folder / "dice_core" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    write_atomic(folder / "run.py", _RUN_PY)
    write_atomic(folder / "evaluation.json", json.dumps(evaluation.to_json(), indent=1, sort_keys=True))
    files = {str(path.relative_to(folder)): sha256_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    manifest = {"format": _FORMAT, "created_at": utc_now(), "dice_version": dice_core.__version__,
                "code": code_state(), "files": files}
    write_atomic(folder / "manifest.json", json.dumps(manifest, indent=1))
    return folder


def open_bundle(folder: Path) -> Bundle:
    """Open and verify a bundle.

    Raises:
        UsageError: not a bundle folder.
        AuditError: a file's bytes differ from the manifest; names the file.
        SourceError: the manifest or the work list cannot be read.
    """
    manifest_path = folder / "manifest.json"
    if not manifest_path.is_file():
        raise UsageError(f"{folder}: not a bundle (no manifest.json)")
    try:
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
        if manifest["format"] != _FORMAT:
            raise SourceError(f"{manifest_path}: bundle format {manifest['format']}, this version reads {_FORMAT}")
        for name, digest in manifest["files"].items():
            path = folder / name
            if not path.is_file() or sha256_file(path) != digest:
                raise AuditError(f"{path}: missing, or changed since the bundle was exported")
        code: dict[str, str] = manifest["code"]
        evaluation = Evaluation.from_json(json.loads((folder / "evaluation.json").read_text(encoding="utf-8")))
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(f"{folder}: unreadable bundle: {error}") from error
    return Bundle(folder, evaluation, code)


def run_bundle(
    folder: Path, *, cache_dir: Path | None = None, isolation: str = "rlimits", cpu_threads: int = 1,
    build_jobs: int | None = None,
    on_result: Callable[[AttemptFile], None] | None = None,
) -> EvaluationSummary:
    """Measure everything in a bundle that has no attempt file yet, on this machine.

    Raises:
        UnfitError: this machine lacks the device, the compiler or the isolation that the work needs.
    """
    bundle = open_bundle(folder)
    device = resolve_device(bundle.evaluation.device)
    level = isolation_level(device)
    found = capture(device, isolation=level, cpu_threads=cpu_threads)
    environment = replace(found, facts={**found.facts, **bundle.code})
    config = ArenaConfig(device=device, cache_dir=cache_dir or folder / "cache", plan=bundle.evaluation.plan,
                         build_jobs=build_jobs, cpu_threads=cpu_threads, required_isolation=isolation,
                         base_path=compiler_path())
    bundle.attempts_dir.mkdir(exist_ok=True)
    return evaluate(bundle.evaluation.items(), bundle.attempts_dir, config, environment, on_result=on_result)


def collect_results(folder: Path) -> tuple[Bundle, list[AttemptFile]]:
    """Read and verify a measured bundle's attempt files.

    Raises:
        UsageError: it has no results yet.
        AuditError: a result file is damaged.
    """
    bundle = open_bundle(folder)
    files = [read_attempt(path) for path in finished_attempts(bundle.attempts_dir).values()]
    if not files:
        raise UsageError(f"{folder}: no results yet; run `python3 run.py` in it on the machine that measures")
    return bundle, files


def main(argv: list[str]) -> int:
    """Command line of `run.py`: the bundle's folder, then options. Prints a line for each attempt."""
    import argparse

    parser = argparse.ArgumentParser(prog="run.py", description="Measure a DICE bundle on this machine.")
    parser.add_argument("folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help="folder of compiled kernels (default: inside the bundle)")
    parser.add_argument("--build-jobs", type=int, help="parallel compilations (default: by cores and memory)")
    parser.add_argument("--isolation", default="rlimits", choices=LEVELS,
                        help="least isolation to accept (default: %(default)s)")
    options = parser.parse_args(argv)
    done = 0

    def show(one: AttemptFile) -> None:
        nonlocal done
        done += 1
        speedup = "" if one.attempt.speedup is None else (
            f"  {one.attempt.speedup:.2f}x [{one.attempt.speedup_low:.2f}, {one.attempt.speedup_high:.2f}]")
        print(f"{done:4d}  {one.labels.get('name', one.attempt.kernel_id):40.40s}  {one.attempt.verdict.value:20s}"
              f"  {one.attempt.honesty.value:8s}{speedup}", flush=True)

    summary = run_bundle(options.folder, cache_dir=options.cache, isolation=options.isolation,
                         build_jobs=options.build_jobs, on_result=show)
    words = ", ".join(f"{verdict} {count}" for verdict, count in sorted(summary.verdicts.items())) or "nothing new"
    print(f"{summary.started} measured, {summary.skipped} done before, {summary.seconds:.0f} s: {words}")
    return 0
