"""One attempt at one request in one header tier, in a process of its own.

This is the command of each edge in the ninja file of a batch: it plans, runs the compilers inside their sandbox with
limits and a deadline, and puts what came of it into the cache. A process of its own has one thread, so the confinement
between fork and exec is safe, and when it is ended it ends its compilers.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from dice_core.arena.build_cache import BuildCache, BuildResult
from dice_core.arena.build_run import StepOutcome, clip, run_step
from dice_core.arena.build_sandbox import Confinement
from dice_core.arena.build_steps import Plan, make_plan, unresolved_names
from dice_core.arena.capture import BuildRequest
from dice_core.arena.light_kit import LightKit, make_aten_binding, make_light_kit
from dice_core.arena.sandbox import leave_network
from dice_core.arena.toolchain import Toolchain, native_identity, own_headers_digest
from dice_core.errors import ArenaError
from dice_core.files import sha256_bytes, write_atomic

#: Raised when the command lines or the layout of an entry change in a way that the key does not see by itself.
_LAYOUT = 2


@dataclass(frozen=True)
class Terms:
    """What all attempts of one farm have in common."""

    cache_dir: str
    arch: str | None
    deadline_s: float
    toolchain: Toolchain

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {**asdict(self), "toolchain": self.toolchain.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Terms:
        """The inverse of `to_json`."""
        return cls(**{**data, "toolchain": Toolchain.from_json(data["toolchain"])})


def entry_key(request: BuildRequest, tier: str, toolchain: Toolchain, arch: str | None) -> str:
    """Hex sha256 of everything that decides the artefact of a request in a tier."""
    payload = {
        "layout": _LAYOUT,
        "request": request.key,
        "tier": tier,
        "headers": "torch" if tier == "full" else own_headers_digest(),
        "tools": toolchain.identity,
        "native": native_identity((*request.extra_cflags, *request.extra_cuda_cflags)),
        "arch": arch if request.with_cuda or request.cuda_sources else None,
    }
    return sha256_bytes(json.dumps(payload, sort_keys=True))


def final(result: BuildResult) -> BuildResult:
    """A result that no further tier will change. Only the full tier can say that a source does not compile."""
    if result.status == "compile_error" and result.tier != "full":
        note = f"the {result.tier} tier cannot compile this, and no further tier is switched on\n"
        return replace(result, status="infra_error", log=clip(note + result.log))
    return result


def attempt(request: BuildRequest, tier: str, terms: Terms) -> BuildResult:
    """Compile `request` in `tier`, or find that in the cache. Faults of ours are results with "infra_error"."""
    cache = BuildCache(Path(terms.cache_dir))
    key = entry_key(request, tier, terms.toolchain, terms.arch)
    try:
        found = cache.read(key, request.key)
        if found is not None:
            return found
        kit = _kit(tier, cache.folder, terms.toolchain)
        plan = make_plan(
            request, tier, module_name=f"dice_{key[:20]}", toolchain=terms.toolchain, arch=terms.arch, kit=kit
        )
        work = cache.temporary()
        try:
            result = _run_plan(request, tier, plan, work, kit, terms)
            if result.status in ("ok", "compile_error"):
                result = cache.store(key, work, plan.output, result)
            return result
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except (OSError, ArenaError) as error:
        return BuildResult(request.key, "infra_error", tier, log=f"the build farm itself failed: {error}")


def _kit(tier: str, cache_dir: Path, toolchain: Toolchain) -> LightKit | None:
    if tier == "full":
        return None
    kit = make_light_kit(cache_dir, toolchain)
    if tier == "aten":
        make_aten_binding(kit, cache_dir, toolchain)
    return kit


def _run_plan(
    request: BuildRequest, tier: str, plan: Plan, work: Path, kit: LightKit | None, terms: Terms
) -> BuildResult:
    for name, text in plan.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    confinement = Confinement.of_compiler(terms.toolchain, work, kit.folder if kit is not None else None)
    start = time.monotonic()
    cpu_seconds = 0.0
    status, log = "ok", ""
    ran: list[tuple[str, ...]] = []
    for number, step in enumerate(plan.steps):
        outcome = run_step(
            step.argv,
            cwd=work,
            path=terms.toolchain.path,
            deadline_s=max(1.0, terms.deadline_s - (time.monotonic() - start)),
            memory_bytes=step.limit_bytes,
            log_name=f"step_{number}.log",
            confinement=confinement,
        )
        ran.append(step.argv)
        cpu_seconds += outcome.cpu_seconds
        status, log = _judge(outcome, step.is_link, tier)
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


def _judge(outcome: StepOutcome, is_link: bool, tier: str) -> tuple[str, str]:
    """Status and log of one step."""
    if outcome.timed_out:
        return "timeout", clip(f"killed after {outcome.seconds:.0f} s\n{outcome.log}")
    if outcome.returncode < 0 or outcome.returncode in (126, 127):
        return "infra_error", clip(f"the compiler ended with status {outcome.returncode}\n{outcome.log}")
    if "Killed signal terminated program" in outcome.log or "virtual memory exhausted" in outcome.log:
        return "infra_error", clip(f"the compiler ran out of memory or was killed\n{outcome.log}")
    if outcome.returncode != 0:
        return "compile_error", outcome.log
    if is_link and tier != "full":
        missing = unresolved_names(outcome.log)
        if missing:
            return "compile_error", clip("names that no library has:\n" + "\n".join(missing))
    return "ok", ""


def main(argv: list[str]) -> int:
    """`TERMS REQUEST RESULT TIER LAST`: make one attempt, and write RESULT when it is the last word on the request.

    What earlier tiers cost is kept beside RESULT and added up.
    """

    def ended(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, ended)
    leave_network()
    terms_path, request_path, result_path, tier, last = argv
    terms = Terms.from_json(json.loads(Path(terms_path).read_text()))
    request = BuildRequest.from_json(json.loads(Path(request_path).read_text()))
    result = attempt(request, tier, terms)
    spent_path = Path(f"{result_path}.spent")
    spent = json.loads(spent_path.read_text()) if spent_path.exists() else [0.0, 0.0]
    if not result.cached:
        spent = [spent[0] + result.seconds, spent[1] + result.cpu_seconds]
    if result.status in ("ok", "infra_error") or last == "last":
        if not result.cached:
            result = replace(result, seconds=spent[0], cpu_seconds=spent[1])
        write_atomic(Path(result_path), json.dumps(final(result).to_json()))
    else:
        write_atomic(spent_path, json.dumps(spent))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
