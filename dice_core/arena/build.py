"""The build farm: captured requests in, shared libraries out, each content compiled once.

Three header tiers (`build_tiers.py`): the first that compiles a request decides; the device code and the flags are the
same in all, and the tier used is recorded. Only *full*, torch's real headers, may say `compile_error`.

Each attempt runs in a process of its own (`build_job.py`); a batch of them is scheduled by ninja (`build_batch.py`).
The cache may be shared by any number of farms in any number of processes (`build_cache.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from dice_core.arena.build_batch import Pending, run_batch
from dice_core.arena.build_cache import BuildCache
from dice_core.arena.build_cache import BuildResult as BuildResult
from dice_core.arena.build_job import Terms, entry_key, final
from dice_core.arena.build_tiers import TIERS as TIERS
from dice_core.arena.build_tiers import tiers_for
from dice_core.arena.capture import BuildRequest
from dice_core.arena.toolchain import DEFAULT_PATH, Toolchain, find_toolchain
from dice_core.errors import UsageError


class BuildFarm:
    """Compiles requests for one device and keeps the results.

    Args:
        cache_dir: Folder of the cache; made when absent.
        device: "cpu" or "cuda".
        arch: GPU architecture such as "sm_90"; needed for CUDA sources.
        jobs: Requests compiled side by side; by default one for each core this process may use. Free memory lowers it.
        deadline_s: Wall seconds that each tier of each request gets.
        tiers: Which tiers to try, in order.
        base_path: PATH on which the compilers and ninja are looked for.

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
        self._cache = BuildCache(self.cache_dir)
        self._cache.lease(self)  # for as long as this farm lives

    def build(self, request: BuildRequest) -> BuildResult:
        """Compile one request, or find it in the cache."""
        return self.build_many([request])[request.key]

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

        def done(result: BuildResult) -> None:
            results[result.request_key] = result
            if on_done is not None:
                on_done(result)

        pending: list[Pending] = []
        for request in unique.values():
            found = self._known(request)
            if isinstance(found, BuildResult):
                done(found)
            else:
                pending.append(found)
        if pending:
            terms = Terms(str(self.cache_dir), self.arch, self.deadline_s, self.toolchain)
            run_batch(pending, terms, self._cache, jobs=self.jobs, on_done=done)
        return {key: results[key] for key in unique}

    def entry_key(self, request: BuildRequest, tier: str) -> str:
        """Hex sha256 of everything that decides the artefact of this request in this tier."""
        return entry_key(request, tier, self.toolchain, self.arch)

    def _known(self, request: BuildRequest) -> BuildResult | Pending:
        """The result that is known already, or what is left to try."""
        refusal = self._refusal(request)
        if refusal:
            return BuildResult(request.key, "infra_error", log=refusal)
        tiers = tiers_for(request, self.tiers, self.toolchain)
        while True:
            found = self._cache.read(self.entry_key(request, tiers[0]), request.key)
            if found is None:
                return Pending(request, tuple(tiers))
            if found.ok or len(tiers) == 1:
                return final(found)
            tiers = tiers[1:]

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
