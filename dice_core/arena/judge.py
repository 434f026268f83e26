"""The judge of one candidate: asks both sides, decides, and never runs a line of foreign code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dice_core.arena import honesty, timing
from dice_core.arena.ahead import Ahead
from dice_core.arena.build import BuildResult
from dice_core.arena.capture import BuildRequest
from dice_core.arena.children import Child, ChildDied, ChildFailed, ChildTimeout
from dice_core.arena.correctness import Finding, check_contract, check_output, check_values
from dice_core.arena.frames import Frame
from dice_core.arena.measure import Measured, Measurement
from dice_core.arena.outcome import Outcome, verdict_of
from dice_core.arena.reference import Reference, TrialFacts, attach
from dice_core.arena.regions import Region
from dice_core.arena.sandbox import Limits
from dice_core.arena.static_flags import static_flags
from dice_core.arena.trees import aligned, tensors
from dice_core.errors import ProtocolError
from dice_core.records import Verdict

#: Two different patterns for free memory: NaN in every floating format, and a large negative or positive number.
POISONS = (0xFF, 0x7B)
#: A candidate may ask for extensions while it runs; it is started again with them this many times.
MAX_BUILD_ROUNDS = 3
_TEXT = 6000
_ENDED = (ChildFailed, ChildDied, ChildTimeout, ProtocolError)


@dataclass(frozen=True)
class Timeouts:
    """Seconds that each kind of request may take."""

    load_s: float
    check_s: float
    call_s: float


class _Decided(Exception):
    def __init__(self, verdict: Verdict, **evidence: Any) -> None:
        super().__init__(verdict.value)
        self.verdict = verdict
        self.evidence = evidence


class Judge:
    """Judges candidates of one evaluation.

    Args:
        nursery: where workers come from.
        limits: of a worker; artefacts are added to what it may read.
        device, threads: told to the worker.
        timeouts: by kind of request.
        build: compiles requests that only show up while the candidate runs.
        kernel_evidence: on CUDA, list launched kernels of correct candidates that are faster (costs seconds).
    """

    def __init__(
        self, nursery: Ahead, limits: Limits, device: str, threads: int, timeouts: Timeouts,
        build: Callable[[list[BuildRequest]], dict[str, BuildResult]], *, kernel_evidence: bool,
    ) -> None:
        self._nursery = nursery
        self._limits = limits
        self._device = device
        self._threads = threads
        self._timeouts = timeouts
        self._build = build
        self._kernel_evidence = kernel_evidence

    def judge(
        self, source: str, reference: Reference, plan: timing.Plan, tag: str, requests: list[BuildRequest],
        results: dict[str, BuildResult],
    ) -> Outcome:
        """Check and time one candidate.

        Args:
            source: the candidate.
            reference: of its problem.
            plan: of the timing.
            tag: attempt id; makes the timed inputs this attempt's own.
            requests: its extensions; grows when it asks for more while it runs.
            results: what became of them; grows likewise.

        Raises:
            ReferenceFailed: the reference broke; nothing is said about the candidate.
        """
        return _Case(self, source, reference, plan, tag, requests, results).run()


class _Case:
    def __init__(
        self, judge: Judge, source: str, reference: Reference, plan: timing.Plan, tag: str,
        requests: list[BuildRequest], results: dict[str, BuildResult],
    ) -> None:
        self._judge = judge
        self._source = source
        self._reference = reference
        self._plan = plan
        self._tag = tag
        self._requests = requests
        self._results = results
        self._outcome = Outcome(Verdict.INFRA_ERROR)
        self._worker: Child | None = None
        self._stage = "build"
        self._floors: list[dict[str, Any]] = []
        self._previous: TrialFacts  # of the call whose output is held

    def run(self) -> Outcome:
        outcome = self._outcome
        try:
            self._check_builds()
            trials = self._reference.trials()
            self._start_and_check(trials)
            self._take(self._measure(trials[0]))
        except _Decided as decided:
            outcome.verdict = decided.verdict
            outcome.evidence |= decided.evidence
        except _ENDED as error:
            outcome.verdict, text = verdict_of(error)
            outcome.blames_device = isinstance(error, ChildFailed) and error.category == "device"
            outcome.evidence |= {"stage": self._stage, "error": text[-_TEXT:]}
        finally:
            if self._worker is not None:
                with self._timed("end"):
                    self._worker.end()
                written = self._worker.output()
                if written and outcome.verdict is not Verdict.CORRECT:
                    outcome.evidence["output"] = written
        return outcome

    def _check_builds(self) -> None:
        for result in self._results.values():
            if result.status == "ok":
                continue
            verdict = {"compile_error": Verdict.COMPILE_ERROR, "timeout": Verdict.TIMEOUT}.get(
                result.status, Verdict.INFRA_ERROR)
            raise _Decided(verdict, stage="build", error=result.log[-_TEXT:], build_key=result.request_key)

    # ---- the worker ----------------------------------------------------------------------------------------------

    def _start(self) -> Child:
        """A fresh worker with the candidate loaded; builds what it asks for on the way."""
        for _ in range(MAX_BUILD_ROUNDS + 1):
            artefacts = {key: result for key, result in self._results.items() if result.status == "ok"}
            self._worker = self._judge._nursery.spawn("worker", worker_limits(self._judge._limits, self._results))
            self._outcome.evidence["isolation"] = self._worker.level
            try:
                attach(self._worker, [("state", self._reference.state_region, False)], self._judge._timeouts.load_s)
                loaded = self._ask(
                    "load",
                    {
                        "source": self._source, "device": self._judge._device, "threads": self._judge._threads,
                        "init": self._reference.init, "state": self._reference.state,
                        "order": self._reference.state_order, "seed": self._reference.model_seed,
                        "artefacts": {key: result.to_json() for key, result in artefacts.items()},
                    },
                    "load", self._judge._timeouts.load_s,
                )
                self._outcome.evidence["state"] = loaded.text("state", 300)
                return self._worker
            except ChildFailed as error:
                if error.category != "unknown_extension":
                    raise
                self._build_more(error)
        raise _Decided(Verdict.LOAD_ERROR, stage="load", error="the candidate asks for new extensions at every start")

    def _build_more(self, error: ChildFailed) -> None:
        """Build what the running candidate asked for, then end it."""
        assert self._worker is not None
        self._worker.end()
        asked = error.body.get("requests")
        if not isinstance(asked, list) or not 0 < len(asked) <= 20:
            raise ProtocolError("a build request that is none")
        try:
            requests = [BuildRequest.from_json(one) for one in asked]
        except ValueError as wrong:
            raise ProtocolError(str(wrong)) from None
        with self._timed("build"):
            self._results |= self._judge._build(requests)
        self._requests.extend(requests)
        self._check_builds()

    def _ask(self, kind: str, body: dict[str, Any], stage: str, timeout_s: float) -> Frame:
        assert self._worker is not None
        self._stage = stage
        return self._worker.ask(kind, body, timeout_s=timeout_s, stage=stage)

    # ---- correctness ---------------------------------------------------------------------------------------------

    def _start_and_check(self, trials: list[TrialFacts]) -> None:
        """Load and check; a candidate that asks for an extension while it runs starts again with it."""
        for _ in range(MAX_BUILD_ROUNDS + 1):
            with self._timed("load"):
                self._start()
            try:
                with self._timed("check"):
                    return self._check(trials)
            except ChildFailed as error:
                if error.category != "unknown_extension":
                    raise
                self._build_more(error)
        raise _Decided(Verdict.RUNTIME_ERROR, stage="check", error="asks for new extensions at every call")

    def _check(self, trials: list[TrialFacts]) -> None:
        largest = max(int(trial.facts["output_bytes"]) for trial in trials)
        slot = aligned(largest)
        regions = [Region(max(self._reference.input_bytes, *(int(t.facts["input_bytes"]) for t in trials)), "inputs"),
                   Region(2 * slot, "outputs"), Region(2 * slot, "evidence"), Region(1, "eager")]
        inputs, outputs, evidence, eager = regions
        try:
            self._reference.attach([
                ("inputs", inputs, True), ("outputs", eager, True), ("evidence", evidence, False)])
            inputs.forbid_new_writers()
            assert self._worker is not None
            attach(self._worker, [("inputs", inputs, False), ("outputs", outputs, True)], self._judge._timeouts.load_s)
            self._check_trials(trials, outputs, evidence, slot)
            self._trace(trials[0])
        finally:
            for region in regions:
                region.close()

    def _check_trials(self, trials: list[TrialFacts], outputs: Region, evidence: Region, slot: int) -> None:
        """All trials, then the first once more over other garbage, with the earlier output looked at again."""
        records: list[dict[str, Any]] = []
        skipped = {str(index): reason for index, reason in sorted(self._reference.skipped.items())}
        self._outcome.evidence |= {"trials": records, "skipped_trials": skipped, "traits": self._reference.traits}
        wrong: Finding | None = None
        for trial, again in [*((one, False) for one in trials), (trials[0], True)]:
            if trial.trial.kind == "weights" and not self._outcome.evidence["state"].startswith("loaded"):
                skipped[str(trial.trial.index)] = "the candidate's state cannot be matched with the reference's"
                continue
            if wrong is not None and (again or not trial.trial.is_own_generator):
                break
            with self._state_of(trial):
                finding = self._one_trial(trial, outputs, evidence, slot, records, POISONS[again], hold=not again)
            wrong = wrong or finding
            if wrong is not None and wrong.verdict is not Verdict.INCORRECT_NUMERICAL:
                break  # a wrong number may go on, for KernelBench's own verdict on all of its trials
        if wrong is not None:
            raise _Decided(wrong.verdict, stage="check", reason=wrong.reason)

    @contextmanager
    def _state_of(self, trial: TrialFacts) -> Iterator[None]:
        """An instance of the candidate with the parameters and buffers that the trial is made with."""
        if trial.trial.kind != "weights":
            yield
            return
        timeout_s = self._judge._timeouts.load_s
        self._ask("twin", {"state": self._reference.other_state}, "other weights", timeout_s)
        yield
        self._ask("single", {}, "other weights", timeout_s)

    def _one_trial(
        self, trial: TrialFacts, outputs: Region, evidence: Region, slot: int, records: list[dict[str, Any]],
        poison: int, *, hold: bool,
    ) -> Finding | None:
        index, stage, timeouts = trial.trial.index, f"trial {trial.trial.index}", self._judge._timeouts
        record: dict[str, Any] = {"trial": index, "kind": trial.trial.kind, "double": trial.facts["double"]}
        records.append(record)
        if self._reference.make_trial(trial.trial) is None:
            return None
        node = self._reference.ask("publish", {"index": index}, stage=stage).mapping("node")
        seed = self._reference.call_seed("trial", index)
        self._ask("prepare", {"nodes": [node], "seed": seed, "poison": poison, "reserve": [
            leaf["nbytes"] for leaf in tensors(trial.output)]}, stage, timeouts.check_s)
        told = self._ask("go", {"spin_us": 0.0, "offsets": [0], "inspect": True, "hold": hold}, stage, timeouts.call_s)
        record["host_us"] = told.number("host_us")
        contract = check_contract(told.items("faults"), told.items("mutated"), dict(trial.facts))
        finding = contract or self._check_output(told, trial, outputs, evidence, 0, slot, record)
        if trial.trial.is_own_generator and self._outcome.kernelbench_correct is not False and contract is None:
            self._outcome.kernelbench_correct = record.get("kernelbench", False)
        if finding is not None:
            return finding
        if not hold:  # the last call: an output held since the previous one must still be what it was
            return self._check_held(outputs, evidence, slot)
        self._previous = trial
        return None

    def _check_output(
        self, told: Frame, trial: TrialFacts, outputs: Region, evidence: Region, low: int, high: int,
        record: dict[str, Any],
    ) -> Finding | None:
        trees = told.items("outputs", 1)
        node, finding = check_output(trees[0] if trees else None, trial.output, low, high)
        if finding is not None:
            return finding
        if told.body.get("copied", True) is not True:
            raise ProtocolError("an output of the right form was not copied out")
        evidence.copy_from(outputs, low, high)
        answer = self._reference.ask("compare", {"node": node, "index": trial.trial.index}, stage="comparison")
        leaves = answer.items("leaves")
        record["measures"] = leaves
        record["kernelbench"] = all(leaf["kernelbench"] for leaf in leaves)
        if trial.trial.index == 0:
            self._floors = leaves
        return check_values(leaves, kind=trial.trial.kind, jumps=self._reference.jumps)

    def _check_held(self, outputs: Region, evidence: Region, slot: int) -> Finding | None:
        trial = self._previous
        if self._reference.make_trial(trial.trial) is None:
            return None
        told = self._ask("held", {"offset": slot}, "held output", self._judge._timeouts.check_s)
        finding = self._check_output(told, trial, outputs, evidence, slot, 2 * slot, {})
        if finding is None:
            return None
        reason = f"recycled_output: a later call changed an earlier output: {finding.reason}"
        return Finding(Verdict.CONTRACT_VIOLATION, reason)

    def _trace(self, trial: TrialFacts) -> None:
        """What one more call runs: the honesty class."""
        if self._reference.make_trial(trial.trial) is None:
            return
        with self._timed("trace"):
            node = self._reference.ask("publish", {"index": trial.trial.index}, stage="trace").mapping("node")
            seed = self._reference.call_seed("trace")
            try:
                told = self._ask(
                    "trace", {"nodes": [node], "seed": seed, "poison": None, "reserve": []}, "trace",
                    self._judge._timeouts.check_s)
            except ChildFailed as error:
                self._outcome.evidence["trace_error"] = error.text[-500:]
                return
        operators = {str(name)[:100]: count for name, count in told.mapping("operators").items()}
        if not all(type(count) is int and 0 <= count < 1 << 31 for count in operators.values()):
            raise ProtocolError("operator counts that are no counts")
        calls = told.whole("extension_calls")
        jit = "triton.jit" in self._source or "@jit" in self._source
        traced = honesty.classify(operators, calls, self._requests, jit_kernel=jit)
        self._outcome.honesty = honesty.with_text(traced, static_flags(self._source).suggests)
        self._outcome.evidence |= honesty.evidence(operators, calls)

    # ---- timing --------------------------------------------------------------------------------------------------

    def _measure(self, trial: TrialFacts) -> Measured:
        assert self._worker is not None
        with self._timed("check"):
            self._judge._nursery.settle()  # nothing but the two sides may run from here on
        with self._timed("time"):
            self._stage = "timing"
            return Measurement(
                self._worker, self._reference, self._plan, trial, self._floors, self._tag,
                self._judge._timeouts.call_s, self._judge._device,
            ).run()

    def _take(self, measured: Measured) -> None:
        outcome = self._outcome
        outcome.samples = measured.samples
        outcome.evidence["timing"] = measured.notes
        if measured.finding is not None:
            raise _Decided(measured.finding.verdict, stage="timing", reason=measured.finding.reason)
        outcome.verdict = Verdict.CORRECT
        outcome.basis = measured.basis
        outcome.speedup = measured.speedup
        faster = measured.speedup is not None and measured.speedup.point > 1.0
        if self._judge._kernel_evidence and self._judge._device == "cuda" and faster:
            with self._timed("kernels"):
                try:
                    told = self._ask("kernels", {}, "launched kernels", self._judge._timeouts.check_s)
                    outcome.evidence["device_kernels_us"] = told.mapping("kernels")
                except _ENDED as error:  # evidence only: a profiler that fails costs nothing else
                    outcome.evidence["device_kernels_error"] = str(error)[-500:]

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        finally:
            self._outcome.stages[stage] = self._outcome.stages.get(stage, 0.0) + time.monotonic() - begin


def worker_limits(limits: Limits, results: Mapping[str, BuildResult]) -> Limits:
    """Limits of a worker that may also read what was built for its candidate."""
    files = tuple(result.artefact for result in results.values() if result.status == "ok")
    return replace(limits, readable=(*limits.readable, *files))
