"""What produced a result: machine, GPU, driver, torch, compilers, isolation, and the state of the code.

`identity` holds what makes two results comparable and decides the environment's id. `facts` holds what was found at
capture time (clocks, load, commit) and is recorded beside it. Standard library only: GPU boxes import this module.
"""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from dice_core.errors import UnfitError
from dice_core.files import sha256_bytes, sha256_file
from dice_core.records import Environment, utc_now

_ROOT = Path(__file__).resolve().parent.parent
_GPU_IDENTITY = ("name", "uuid", "driver_version", "memory.total", "power.limit", "mig.mode.current")
_GPU_STATE = ("clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "temperature.gpu", "pstate",
              "utilization.gpu", "persistence_mode", "ecc.mode.current")


def resolve_device(wanted: str) -> str:
    """`auto` becomes `cuda` where a GPU and nvcc are there, else `cpu`.

    Raises:
        UnfitError: `cuda` was asked for and there is no GPU, or `cpu` work has no C++ compiler.
    """
    gpu = bool(_gpu(("name",)))
    if wanted == "cuda" and not gpu:
        raise UnfitError("device cuda was asked for, but nvidia-smi finds no GPU")
    device = "cuda" if wanted == "cuda" or (wanted == "auto" and gpu) else "cpu"
    if not _first_line("c++", "--version"):
        raise UnfitError("no C++ compiler: `c++ --version` fails; install g++")
    if device == "cuda" and not _nvcc():
        raise UnfitError("no CUDA compiler: `nvcc --version` fails; install the CUDA toolkit")
    return device


def capture(device: str, *, isolation: str, cpu_threads: int) -> Environment:
    """Describe this machine as it is now.

    Args:
        device: `cpu` or `cuda`.
        isolation: the isolation level that candidates really reach here.
        cpu_threads: threads given to PyTorch and candidates on the CPU.
    """
    identity = {
        "device": device,
        "cpu": _cpu_model(),
        "cpu_cores": str(os.cpu_count() or 0),
        "cpu_threads": str(cpu_threads),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
        "cxx": _first_line("c++", "--version"),
        "isolation": isolation,
    }
    facts: dict[str, object] = {
        "captured_at": utc_now(),
        "kernel": platform.release(),
        "host": sha256_bytes(platform.node())[:16],
        "load_average": list(os.getloadavg()),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        **code_state(),
    }
    if device == "cuda":
        found = _gpu(_GPU_IDENTITY)
        identity |= {
            "gpu": found.get("name", ""),
            "gpu_uuid_hash": sha256_bytes(found.get("uuid", ""))[:16],
            "gpu_memory": found.get("memory.total", ""),
            "gpu_power_limit": found.get("power.limit", ""),
            "mig": found.get("mig.mode.current", ""),
            "driver": found.get("driver_version", ""),
            "nvcc": _nvcc(),
        }
        facts["gpu_state"] = _gpu(_GPU_STATE)
    return Environment(identity=identity, facts=facts)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _run(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _first_line(*argv: str) -> str:
    return _run(*argv).partition("\n")[0].strip()


def _nvcc() -> str:
    for program in ("nvcc", "/usr/local/cuda/bin/nvcc"):
        lines = [line.strip() for line in _run(program, "--version").splitlines() if line.startswith("Build")]
        if lines:
            return lines[0]
    return ""


def _gpu(names: tuple[str, ...]) -> dict[str, str]:
    """Fields of the first GPU by nvidia-smi's names; empty without a GPU."""
    line = _first_line("nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader", "--id=0")
    values = [value.strip() for value in line.split(",")]
    return dict(zip(names, values, strict=True)) if len(values) == len(names) and values[0] else {}


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.processor()


def code_state() -> dict[str, str]:
    """Commit, hash of uncommitted changes and hash of the lock file; `unknown` outside a checkout."""
    commit = _run("git", "-C", str(_ROOT), "rev-parse", "HEAD").strip()
    state = {"git_commit": commit or "unknown"}
    if commit:
        changes = _run("git", "-C", str(_ROOT), "diff", "HEAD")
        state["git_dirty"] = sha256_bytes(changes)[:16] if changes else "clean"
    lock = _ROOT / "requirements.lock"
    if lock.is_file():
        state["lock_sha256"] = sha256_file(lock)
    return state
