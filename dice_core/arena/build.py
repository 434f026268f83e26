"""The build farm: captured requests in, shared libraries out, each content compiled once.

Two header tiers. *light* resolves `torch/extension.h` to DICE's own small header over PyTorch's stable C ABI and
compiles in seconds; whatever it cannot compile or link goes to *full*, torch's real headers, which alone may say
`compile_error`. The device code and the flags are the same in both; the tier used is recorded.

The cache is a folder of entries named by content, put in place by one rename, so that any number of farms in any
number of processes may share it. Failed compilations are cached too; timeouts and faults of ours are not.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from dice_core.arena.build_run import GIB, MemoryGate, StepOutcome, available_memory_bytes, clip, run_step
from dice_core.arena.build_steps import Plan, make_plan, unresolved_names
from dice_core.arena.capture import BuildRequest
from dice_core.arena.light_kit import LightKit, make_light_kit
from dice_core.arena.toolchain import DEFAULT_PATH, Toolchain, find_toolchain, light_digest, native_identity
from dice_core.errors import ArenaError, UsageError
from dice_core.files import fsync_dir, sha256_bytes, sha256_file, write_atomic

TIERS = ("light", "full")
#: Raised when the command lines or the layout of an entry change in a way that the key does not see by itself.
_LAYOUT = 1
_MEMORY_RESERVE_BYTES = GIB


@dataclass(frozen=True)
class BuildResult:
    """What became of one request.

    Attributes:
        request_key: `BuildRequest.key`.
        status: "ok", "compile_error" (the candidate's fault), "timeout" or "infra_error" (ours).
        tier: The header tier that decided: "light", "full" or "" when none ran.
        artefact: Absolute path of the shared library, "" if there is none.
        artefact_sha256: Hex sha256 of its bytes.
        module_name: Name of its Python module, unique by content.
        log: The compiler's own words (of the full tier when both failed), head and tail.
        argv: The commands that were run, in order.
        seconds: Wall time of the build that made the entry.
        cpu_seconds: CPU time of that build, all tiers tried.
        cached: Whether the entry was there already.
        dropped_flags: Flags of the candidate that were refused.
    """

    request_key: str
    status: str
    tier: str = ""
    artefact: str = ""
    artefact_sha256: str = ""
    module_name: str = ""
    log: str = ""
    argv: tuple[tuple[str, ...], ...] = ()
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    cached: bool = False
    dropped_flags: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is an artefact to load."""
        return self.status == "ok"

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> BuildResult:
        """The inverse of `to_json`.

        Raises:
            ValueError: a field is missing or unknown, or the status is none of the four.
        """
        names = {field.name for field in fields(cls)}
        if set(data) != names:
            raise ValueError(f"a build result must have exactly the fields {sorted(names)}, got {sorted(data)}")
        if data["status"] not in ("ok", "compile_error", "timeout", "infra_error"):
            raise ValueError(f"build result, field status: {data['status']!r} is unknown")
        values = {
            **data,
            "argv": tuple(tuple(command) for command in data["argv"]),
            "dropped_flags": tuple(data["dropped_flags"]),
        }
        return cls(**values)


class BuildFarm:
    """Compiles requests for one device and keeps the results.

    Args:
        cache_dir: Folder of the cache; made when absent.
        device: "cpu" or "cuda".
        arch: GPU architecture such as "sm_90"; needed for CUDA sources.
        jobs: Requests compiled side by side; by default one for each core this process may use.
        deadline_s: Wall seconds that each tier of each request gets.
        tiers: Which tiers to try, in order.
        base_path: PATH on which the compilers are looked for.

    Raises:
        UsageError: `device` or `tiers` is not one of the known values.
        UnfitError: no C++ compiler, no Python.h or no torch.
    """

    def __init__(
        self,
        cache_dir: Path,
        *,
        device: str,
        arch: str | None = None,
        jobs: int | None = None,
        deadline_s: float = 300.0,
        tiers: tuple[str, ...] = TIERS,
        base_path: str = DEFAULT_PATH,
    ) -> None:
        if device not in ("cpu", "cuda"):
            raise UsageError(f"device must be cpu or cuda, not {device!r}")
        if not tiers or any(tier not in TIERS for tier in tiers):
            raise UsageError(f"tiers must be some of {TIERS}, not {tiers!r}")
        self.cache_dir = Path(cache_dir).resolve()
        self.device = device
        self.arch = arch
        self.jobs = max(1, jobs if jobs is not None else len(os.sched_getaffinity(0)))
        self.deadline_s = deadline_s
        self.tiers = tiers
        self.toolchain: Toolchain = find_toolchain(base_path)
        self._gate = MemoryGate(max(GIB, available_memory_bytes() - _MEMORY_RESERVE_BYTES))
        self.cache_dir.mkdir(parents=True, exist_ok=True)
        self._kit: LightKit | None = None
        self._kit_lock = threading.Lock()

    def build_many(
        self, requests: Iterable[BuildRequest], on_done: Callable[[BuildResult], None] | None = None
    ) -> dict[str, BuildResult]:
        """Compile many requests side by side.

        Args:
            requests: What to compile; equal requests are compiled once.
            on_done: Called in the calling thread with each result as it comes.

        Returns:
            Request key to result. Never raises for a request: faults of ours are results with "infra_error".
        """
        unique = {request.key: request for request in requests}
        results: dict[str, BuildResult] = {}
        with ThreadPoolExecutor(max_workers=self.jobs, thread_name_prefix="build") as pool:
            futures = {pool.submit(self.build, request): key for key, request in unique.items()}
            try:
                for future in as_completed(futures):
                    result = future.result()
                    results[result.request_key] = result
                    if on_done is not None:
                        on_done(result)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        return {key: results[key] for key in unique}

    def build(self, request: BuildRequest) -> BuildResult:
        """Compile one request, or find it in the cache."""
        refusal = self._refusal(request)
        if refusal:
            return BuildResult(request.key, "infra_error", log=refusal)
        spent_s = spent_cpu_s = 0.0
        result = BuildResult(request.key, "infra_error", log="no tier was tried")
        for tier in self.tiers:
            try:
                result = self._build_tier(request, tier)
            except (OSError, ArenaError) as error:
                result = BuildResult(request.key, "infra_error", tier, log=f"the build farm itself failed: {error}")
            if not result.cached:
                spent_s, spent_cpu_s = spent_s + result.seconds, spent_cpu_s + result.cpu_seconds
            if result.status == "ok" or result.status == "infra_error":
                break
        if result.status == "compile_error" and result.tier != "full":
            note = "the light tier cannot compile this, and the full tier is switched off\n"
            result = replace(result, status="infra_error", log=clip(note + result.log))
        return result if result.cached else replace(result, seconds=spent_s, cpu_seconds=spent_cpu_s)

    # ---- one tier ------------------------------------------------------------------------------------------------

    def _build_tier(self, request: BuildRequest, tier: str) -> BuildResult:
        key = self.entry_key(request, tier)
        found = self._read_entry(key, request)
        if found is not None:
            return found
        plan = make_plan(
            request,
            module_name=f"dice_{key[:20]}",
            toolchain=self.toolchain,
            arch=self.arch,
            kit=self._light_kit() if tier == "light" else None,
        )
        work = Path(tempfile.mkdtemp(prefix=".work-", dir=self.cache_dir))
        try:
            result = self._run_plan(request, tier, plan, work)
            if result.status in ("ok", "compile_error"):
                result = self._store(key, request, plan, work, result)
            return result
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _run_plan(self, request: BuildRequest, tier: str, plan: Plan, work: Path) -> BuildResult:
        for name, text in plan.files.items():
            (work / name).write_text(text, encoding="utf-8", errors="surrogateescape")
        start = time.monotonic()
        cpu_seconds = 0.0
        status, log = "ok", ""
        ran: list[tuple[str, ...]] = []
        for number, step in enumerate(plan.steps):
            with self._gate.hold(step.expected_bytes):
                # Waiting for memory is not the candidate's time, so each step's share is counted by its own clock.
                left_s = self.deadline_s - cpu_seconds
                outcome = run_step(
                    step.argv,
                    cwd=work,
                    path=self.toolchain.path,
                    deadline_s=max(1.0, left_s),
                    memory_bytes=step.limit_bytes,
                    log_name=f"step_{number}.log",
                )
            ran.append(step.argv)
            cpu_seconds += outcome.cpu_seconds
            status, log = self._judge(outcome, step.is_link, tier)
            if status != "ok":
                break
        return BuildResult(
            request_key=request.key,
            status=status,
            tier=tier,
            log=log,
            argv=tuple(ran),
            seconds=time.monotonic() - start,
            cpu_seconds=cpu_seconds,
            dropped_flags=plan.dropped_flags,
        )

    def _judge(self, outcome: StepOutcome, is_link: bool, tier: str) -> tuple[str, str]:
        """Status and log of one step."""
        if outcome.timed_out:
            return "timeout", clip(f"killed after {outcome.seconds:.0f} s\n{outcome.log}")
        if outcome.returncode < 0 or outcome.returncode in (126, 127):
            return "infra_error", clip(f"the compiler ended with status {outcome.returncode}\n{outcome.log}")
        if "Killed signal terminated program" in outcome.log or "virtual memory exhausted" in outcome.log:
            return "infra_error", clip(f"the compiler ran out of memory or was killed\n{outcome.log}")
        if outcome.returncode != 0:
            return "compile_error", outcome.log
        if is_link and tier == "light":
            missing = unresolved_names(outcome.log)
            if missing:
                return "compile_error", clip("names that no library has:\n" + "\n".join(missing))
        return "ok", ""

    # ---- the cache -----------------------------------------------------------------------------------------------

    def entry_key(self, request: BuildRequest, tier: str) -> str:
        """Hex sha256 of everything that decides the artefact of this request in this tier."""
        payload = {
            "layout": _LAYOUT,
            "request": request.key,
            "tier": tier,
            "headers": light_digest() if tier == "light" else "torch",
            "tools": self.toolchain.identity,
            "native": native_identity((*request.extra_cflags, *request.extra_cuda_cflags)),
            "arch": self.arch if request.with_cuda or request.cuda_sources else None,
        }
        return sha256_bytes(json.dumps(payload, sort_keys=True))

    def _entry(self, key: str) -> Path:
        return self.cache_dir / key[:2] / key

    def _read_entry(self, key: str, request: BuildRequest) -> BuildResult | None:
        """The cached result, or None when there is none or it does not hold what it says."""
        entry = self._entry(key)
        try:
            result = BuildResult.from_json(json.loads((entry / "result.json").read_text()))
        except FileNotFoundError:
            if entry.exists():
                self._discard(entry)
            return None
        except (OSError, ValueError, TypeError, KeyError):
            self._discard(entry)
            return None
        whole = result.request_key == request.key
        if whole and result.status == "ok":
            artefact = entry / result.artefact
            whole = artefact.is_file() and sha256_file(artefact) == result.artefact_sha256
            result = replace(result, artefact=str(artefact))
        if not whole:
            self._discard(entry)
            return None
        return replace(result, cached=True)

    def _store(self, key: str, request: BuildRequest, plan: Plan, work: Path, result: BuildResult) -> BuildResult:
        """Put a finished build in place by one rename; when another farm was first, its entry is the result."""
        staged = work / "entry"
        staged.mkdir()
        if result.status == "ok":
            library = staged / plan.output
            shutil.move(work / plan.output, library)
            library.chmod(0o644)
            with library.open("rb") as handle:
                os.fsync(handle.fileno())
            result = replace(
                result,
                artefact=plan.output,  # relative inside the entry, so that a cache can be moved
                artefact_sha256=sha256_file(library),
                module_name=plan.output.removesuffix(".so"),
            )
        write_atomic(staged / "result.json", json.dumps(result.to_json(), indent=1))
        entry = self._entry(key)
        entry.parent.mkdir(exist_ok=True)
        try:
            staged.rename(entry)
        except OSError:
            found = self._read_entry(key, request)
            if found is None:
                raise
            return replace(found, cached=False, seconds=result.seconds, cpu_seconds=result.cpu_seconds)
        fsync_dir(entry.parent)
        return replace(result, artefact=str(entry / result.artefact) if result.artefact else "")

    def _discard(self, entry: Path) -> None:
        """Move a broken entry aside in one step and remove it."""
        aside = Path(tempfile.mkdtemp(prefix=".broken-", dir=self.cache_dir))
        with contextlib.suppress(OSError):
            entry.rename(aside / "entry")
        shutil.rmtree(aside, ignore_errors=True)

    def _light_kit(self) -> LightKit:
        with self._kit_lock:
            if self._kit is None:
                self._kit = make_light_kit(self.cache_dir, self.toolchain)
            return self._kit

    def _refusal(self, request: BuildRequest) -> str:
        """Why this farm cannot take the request at all, or ""."""
        wants_cuda = request.with_cuda or bool(request.cuda_sources)
        if wants_cuda and self.device != "cuda":
            return "the request has CUDA sources and this farm builds for the CPU"
        if wants_cuda and self.toolchain.nvcc is None:
            return "the request has CUDA sources and no CUDA toolkit was found"
        if wants_cuda and not self.arch:
            return "the request has CUDA sources and no GPU architecture was given"
        return ""


if __name__ == "__main__":
    from dice_core.arena.build_cli import main

    raise SystemExit(main())
