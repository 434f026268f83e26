"""One run of the arena: processes, captures, builds, then one candidate after another."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dice_core.arena import sandbox
from dice_core.arena.ahead import Ahead
from dice_core.arena.build import BuildFarm, BuildResult
from dice_core.arena.capture import BuildRequest
from dice_core.arena.children import ChildDied, ChildFailed, ChildTimeout, Zygote
from dice_core.arena.judge import Judge, Timeouts, worker_limits
from dice_core.arena.outcome import Outcome, verdict_of
from dice_core.arena.reference import Problem, Reference, ReferenceFailed, Terms
from dice_core.arena.static_flags import static_flags
from dice_core.arena.timing import median_us, plan_named
from dice_core.arena.trees import commitment
from dice_core.errors import ArenaError, ProtocolError, UnfitError
from dice_core.lake.attempts import AttemptFile
from dice_core.records import PROTOCOL_VERSION, Attempt, Build, Environment, Kernel, Verdict, WorkItem, utc_now

if TYPE_CHECKING:
    from dice_core.arena.evaluate import ArenaConfig

#: Evaluations that failed through our own fault are tried again this often.
_RETRIES = 2
#: After these a candidate may have left the device in a bad state.
_DEATHS = frozenset({Verdict.RUNTIME_ERROR, Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY, Verdict.CONTRACT_VIOLATION})
_PROBE_PAUSES_S = (0.0, 2.0, 10.0)
_FARM_FAILED = "infra_error"
_FILE_BYTES = 64 << 20
_LOG_KEPT = 20_000
#: glibc's allocator learns from what a process has freed before. Fixed thresholds keep the referee, which has lived
#: longer, from having fewer page faults per call than a fresh worker: that alone made it look about 1.35 times faster.
_STEADY_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1)}


class BuildProgress(Protocol):
    """Called while candidates are captured and compiled: done, total, a note."""

    def __call__(self, built: int, total: int, note: str = "") -> None:
        """Take one step of progress."""


@dataclass
class Case:
    """One item on its way through the arena."""

    item: WorkItem
    attempt_id: str
    requests: list[BuildRequest] = field(default_factory=list)
    results: dict[str, BuildResult] = field(default_factory=dict)
    decided: Outcome | None = None  #: while it was captured
    capture_s: float = 0.0
    uid: int = sandbox.WORKER_UID  #: of its worker


class ArenaRun:
    """Holds the zygote and the farm of one `evaluate` call.

    Raises:
        UnfitError: the device, the compiler or the required isolation is not there.
    """

    def __init__(self, config: ArenaConfig, environment: Environment, scratch: Path) -> None:
        self._config = config
        self._environment = environment
        self._scratch = scratch
        self._level = sandbox.isolation_level(config.device, environment=config.child_environment)
        if not sandbox.at_least(self._level, config.required_isolation):
            raise UnfitError(
                f"this machine isolates candidates at level {self._level}, {config.required_isolation} is required")
        self._zygote = self._new_zygote()
        self._nursery = Ahead(self._zygote, config.device, config.load_timeout_s)
        self._farm: BuildFarm | None = None
        self._suspect = False  # something died on the device
        self._broken = ""  # why the device no longer works

    def close(self) -> None:
        """End all processes."""
        self._nursery.close()
        self._zygote.close()

    # ---- capture and build ---------------------------------------------------------------------------------------

    def build(self, cases: Sequence[Case], progress: BuildProgress | None) -> None:
        """Capture every candidate and compile what it asks for. Equal requests are compiled once."""
        asking = [case for case in cases if "cpp_extension" in case.item.kernel_source]
        jobs = self._config.build_jobs or len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="capture") as pool:
            for number, _ in enumerate(as_completed([pool.submit(self._capture, case) for case in asking]), 1):
                if progress is not None:
                    progress(number, len(asking), "candidates read")
        requests = {request.key: request for case in asking for request in case.requests}
        finished = 0

        def told(result: BuildResult) -> None:
            nonlocal finished
            finished += 1
            if progress is not None:
                progress(finished, len(requests), f"{result.status} {result.tier}{' cached' if result.cached else ''}")

        results = self._build(list(requests.values()), told) if requests else {}
        for case in asking:
            case.results = {request.key: results[request.key] for request in case.requests}

    def _build(
        self, requests: list[BuildRequest], on_done: Callable[[BuildResult], None] | None = None
    ) -> dict[str, BuildResult]:
        if self._farm is None:
            config = self._config
            arch = config.arch or self._architecture()
            self._farm = BuildFarm(
                config.cache_dir, device=config.device, arch=arch, jobs=config.build_jobs,
                deadline_s=config.build_deadline_s, base_path=config.base_path)
        return self._farm.build_many(requests, on_done=on_done)

    def _capture(self, case: Case) -> None:
        begin = time.monotonic()
        try:
            child = self._zygote.spawn("worker", self._limits(sandbox.WORKER_UID))
            try:
                told = child.ask(
                    "capture", {"source": case.item.kernel_source}, timeout_s=self._config.load_timeout_s,
                    stage="import for build capture")
                requests = [BuildRequest.from_json(one) for one in told.items("requests", 100)]
            finally:
                child.end()
            case.requests = list({request.key: request for request in requests}.values())
        except (ChildFailed, ChildDied, ChildTimeout, ProtocolError) as error:
            verdict, text = verdict_of(error)
            case.decided = Outcome(verdict, evidence={"stage": "capture", "error": text, "output": child.output()})
        except ValueError as error:
            case.decided = Outcome(Verdict.CONTRACT_VIOLATION, evidence={"stage": "capture", "error": str(error)})
        except ArenaError:
            pass  # ours: the real run asks again, and is retried there
        case.capture_s = time.monotonic() - begin

    def _architecture(self) -> str | None:
        child = self._zygote.spawn("referee", self._limits(sandbox.REFEREE_UID))
        try:
            told = child.ask("device", {"device": self._config.device}, timeout_s=self._config.load_timeout_s)
            return told.text("arch") or None
        except ChildFailed as error:
            raise UnfitError(f"{self._config.device} does not start in a sandboxed child: {error.text}") from error
        finally:
            child.end()

    # ---- check and time ------------------------------------------------------------------------------------------

    def attempts(self, cases: Sequence[Case]) -> Iterator[AttemptFile]:
        """Evaluate the cases one at a time, those of one problem together; yields each as it is decided.

        Raises:
            UnfitError: the device stopped working. The attempt that met that is yielded before, as INFRA_ERROR.
        """
        places: dict[str, int] = {}
        for case in cases:
            places.setdefault(case.item.problem_id, len(places))
        ordered = sorted(cases, key=lambda case: places[case.item.problem_id])  # stable: in order within a problem
        for number, case in enumerate(ordered):
            case.uid = (sandbox.WORKER_UID, sandbox.OTHER_WORKER_UID)[number % 2]
        problem: Problem | None = None
        try:
            for case, coming in zip(ordered, [*ordered[1:], None], strict=True):
                if problem is None or problem.problem_id != case.item.problem_id:
                    if problem is not None:
                        problem.close()
                    problem = Problem(case.item.problem_id, partial(self.reference, case.item.problem_source))
                yield self._attempt(case, problem, coming)
                if self._broken:
                    raise UnfitError(
                        f"{self._config.device} no longer works, so nothing more is measured on it: {self._broken}")
        finally:
            if problem is not None:
                problem.close()

    def _attempt(self, case: Case, problem: Problem, coming: Case | None) -> AttemptFile:
        started_at = utc_now()
        self._expect(problem, case, coming)
        outcome = case.decided or self._judged(case, problem)
        ended_at = utc_now()
        item, speedup = case.item, outcome.speedup
        report = static_flags(item.kernel_source)
        secret = problem.secret
        outcome.stages = {
            "capture": case.capture_s, "build": sum(one.seconds for one in case.results.values() if not one.cached),
            **outcome.stages,
        }
        basis = outcome.basis
        attempt_id = case.attempt_id
        if outcome.verdict.is_infra:
            attempt_id = item.attempt_id(self._environment.environment_id, lost=started_at)
        attempt = Attempt(
            attempt_id=attempt_id, kernel_id=item.kernel_id, problem_id=item.problem_id,
            environment_id=self._environment.environment_id, protocol_version=PROTOCOL_VERSION, plan=item.plan,
            device=item.device, ordinal=item.ordinal, seed_commitment=commitment(secret), seed=secret,
            verdict=outcome.verdict, honesty=outcome.honesty, started_at=started_at, ended_at=ended_at,
            stages={name: round(seconds, 6) for name, seconds in outcome.stages.items()},
            evidence={**outcome.evidence, "static": {"flags": list(report.flags), "suggests": str(report.suggests)}},
            basis=basis, speedup=speedup.point if speedup else None, speedup_low=speedup.low if speedup else None,
            speedup_high=speedup.high if speedup else None,
            baseline_us=median_us(outcome.samples, "eager", basis) if basis else None,
            candidate_us=median_us(outcome.samples, "candidate", basis) if basis else None,
            kernelbench_correct=outcome.kernelbench_correct,
        )
        return AttemptFile(
            attempt, self._environment, item.problem_source, Kernel(item.kernel_source, language=_language(item)),
            tuple(_build_record(one, item.kernel_id) for one in case.results.values()), tuple(outcome.samples),
            dict(item.labels))

    def _judged(self, case: Case, problem: Problem) -> Outcome:
        failure = ""
        disagreed = False
        blamed: Outcome | None = None
        for _ in range(_RETRIES + 1):
            if self._suspect and self._is_broken():
                break
            try:
                self._build_again(case)
                begin = time.monotonic()
                reference = problem.reference()
                reference_s = time.monotonic() - begin
                if isinstance(reference, str):
                    if self._is_broken():
                        break
                    return Outcome(Verdict.TASK_ERROR, evidence={"stage": "reference", "error": reference})
                judge = Judge(
                    self._nursery, self._worker_limits(case), self._config.device, self._config.cpu_threads,
                    Timeouts(self._config.load_timeout_s, self._config.check_timeout_s, self._config.call_timeout_s),
                    self._build, kernel_evidence=self._config.kernel_evidence)
                outcome = judge.judge(
                    case.item.kernel_source, reference, plan_named(case.item.plan), case.attempt_id, case.requests,
                    case.results)
                outcome.stages["reference"] = reference_s
                self._suspect = outcome.verdict in _DEATHS or outcome.verdict.is_infra
                if outcome.verdict is Verdict.TIMING_DISAGREE and not disagreed:
                    disagreed = True  # a busy machine looks like a lying clock: the second word counts
                    failure = str(outcome.evidence.get("reason", ""))
                    continue
                if not outcome.verdict.is_infra:
                    return outcome
                failure = str(outcome.evidence.get("error", ""))
                blamed = outcome if outcome.blames_device else None
            except ReferenceFailed as error:
                failure = str(error)
                self._suspect = True
                problem.failed(failure)
            except Exception as error:  # the last net: whatever one candidate provokes, the others are evaluated
                failure = f"{type(error).__name__}: {error}"
                self._suspect = True
                problem.close()
                self._renew()
        if blamed is not None and not self._is_broken():
            # A fresh child runs on the device, this candidate's alone does not: that is no fault of ours.
            blamed.verdict = Verdict.RUNTIME_ERROR
            return blamed
        evidence = {"stage": "device", "error": self._broken} if self._broken else {
            "stage": "arena", "error": failure[-6000:]}
        return Outcome(Verdict.INFRA_ERROR, evidence=evidence)

    def _expect(self, problem: Problem, case: Case, coming: Case | None) -> None:
        """Have the next candidate's children started while this one is loaded and checked, this one's where missing."""
        children: list[tuple[str, sandbox.Limits]] = []
        for one in (case, coming):
            if one is None or one.decided is not None:
                continue
            if not problem.is_running if one is case else one.item.problem_id != problem.problem_id:
                children.append(("referee", self._limits(sandbox.REFEREE_UID)))
            children.append(("worker", worker_limits(self._worker_limits(one), one.results)))
        self._nursery.expect(children)

    def _worker_limits(self, case: Case) -> sandbox.Limits:
        return self._limits(case.uid, self._programs(case.item))

    def _build_again(self, case: Case) -> None:
        """Ask the farm once more for what it could not build through our own fault."""
        failed = {key for key, result in case.results.items() if result.status == _FARM_FAILED}
        lost = [request for request in case.requests if request.key in failed]
        if lost:
            case.results |= self._build(lost)

    def _is_broken(self) -> bool:
        """Whether the device has been lost; asked after something died on it, before it is used again."""
        self._broken = self._device_error()
        self._suspect = bool(self._broken)
        return self._suspect

    def _device_error(self) -> str:
        """Why a fresh child cannot run a trivial kernel on the device, "" when it can or there is none to lose."""
        if self._config.device == "cpu":
            return ""
        error = ""
        for pause_s in _PROBE_PAUSES_S:  # a driver that ends another process may need a moment
            time.sleep(pause_s)
            try:
                self._architecture()
                return ""
            except ArenaError as failed:
                error = f"{type(failed).__name__}: {failed}"[-2000:]
            except UnfitError as failed:
                error = str(failed)[-2000:]
        return error

    def reference(self, source: str) -> Reference:
        """A new referee for a problem."""
        terms = Terms(self._config.device, self._config.cpu_threads, self._config.load_timeout_s,
                      self._config.check_timeout_s)
        return Reference(self._nursery, self._limits(sandbox.REFEREE_UID), source, terms)

    def _renew(self) -> None:
        if not self._zygote.alive:
            self._nursery.close()
            self._zygote.close()
            self._zygote = self._new_zygote()
            self._nursery = Ahead(self._zygote, self._config.device, self._config.load_timeout_s)

    def _new_zygote(self) -> Zygote:
        threads = str(self._config.cpu_threads)
        return Zygote(self._scratch, {
            # Relative: each child works in its own private folder, and caches of drivers and compilers go there.
            "HOME": ".", "TMPDIR": ".",
            "PATH": self._config.base_path, "LC_ALL": "C.UTF-8", "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONDONTWRITEBYTECODE": "1",
            **_STEADY_MALLOC, **self._config.child_environment,
        })

    def _programs(self, item: WorkItem) -> tuple[str, ...]:
        """Triton compiles while the candidate runs: it starts its own ptxas and a C compiler.

        It also asks ldconfig, which Debian and Ubuntu have as a shell script.
        """
        if self._config.device == "cpu" or _language(item) != "triton":
            return ()
        spec = importlib.util.find_spec("triton")
        bundled = [str(Path(spec.origin).parent / "backends")] if spec is not None and spec.origin else []
        names = ("cc", "gcc", "clang", "as", "ld", "ldconfig", "ldconfig.real", "sh", "ptxas")
        found = (shutil.which(name, path=f"{self._config.base_path}:/sbin:/usr/sbin") for name in names)
        parts = ("/usr/lib/gcc", "/usr/libexec/gcc", "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
        return (*bundled, *(path for path in found if path), *parts)

    def _limits(self, uid: int, programs: tuple[str, ...] = ()) -> sandbox.Limits:
        on_cpu = self._config.device == "cpu"
        cpus = sorted(os.sched_getaffinity(0))[-self._config.cpu_threads :] if on_cpu else []
        processes = (64 if on_cpu else 1024) + 4 * (os.cpu_count() or 1)
        return sandbox.Limits(
            level=self._level, memory_bytes=self._config.memory_bytes if on_cpu else None, cpu_s=3600,
            file_bytes=_FILE_BYTES, open_files=256 if on_cpu else 4096, processes=processes, uid=uid, cpus=tuple(cpus),
            pid_namespace=on_cpu, unix_sockets=not on_cpu, programs=programs)


def _build_record(result: BuildResult, kernel_id: str) -> Build:
    return Build(
        build_key=result.request_key, kernel_id=kernel_id, status=result.status, tier=result.tier,
        artefact_sha256=result.artefact_sha256, seconds=result.seconds, cpu_seconds=result.cpu_seconds,
        cached=result.cached, argv_json=json.dumps(result.argv), log=result.log[-_LOG_KEPT:])


def _language(item: WorkItem) -> str:
    source = item.kernel_source
    if "triton" in source and "@triton" in source:
        return "triton"
    if "__global__" in source or "cuda_sources" in source:
        return "cuda"
    return "cpp" if "cpp_sources" in source else item.labels.get("language", "unknown")

