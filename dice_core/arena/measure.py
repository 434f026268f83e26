"""Interleaved timing of one candidate against the eager reference, every timed call on fresh values.

The judge hands the turn to one side at a time and keeps its own clock around each request. Outputs of timed calls are
copied out at once and compared afterwards; which calls are compared the worker cannot know beforehand.
"""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dice_core.arena import timing
from dice_core.arena.children import Child
from dice_core.arena.correctness import TIMED_FACTOR, Finding, check_output, check_values
from dice_core.arena.frames import Frame
from dice_core.arena.reference import Reference, TrialFacts, attach
from dice_core.arena.regions import Region
from dice_core.arena.trees import Node, aligned, derive_seed, tensors
from dice_core.errors import ProtocolError
from dice_core.records import TimingSample, Verdict

#: Distinct inputs of one block take at most this much; with less room they repeat, which is recorded.
INPUT_BUDGET_BYTES = 512 << 20
#: Up to this much output per block every timed call is compared.
_CHECK_ALL_BYTES = 16 << 20
#: Above this, only one random call of a block is.
_CHECK_ONE_BYTES = 128 << 20
_WARM_SETS = 3
_ROW = 8
#: Blocks measured at most, as a multiple of those wanted, and the fewest that make an interval.
_BLOCK_LIMIT = 4
_LEAST_BLOCKS = 3
#: A batched sample averages many calls already, so a block needs this many times fewer, but at least so many.
_CALLS_IN_BATCH = 5
_LEAST_CALLS = 2
#: Of a batched sample at most this many outputs are compared; the worker learns which only after the clock stopped.
_CHECKED_IN_BATCH = 8
_T = TypeVar("_T")


@dataclass
class Measured:
    """What timing gave. `finding` is set when it ended in another verdict than CORRECT."""

    samples: list[TimingSample]
    speedup: timing.Speedup | None
    finding: Finding | None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Call:
    """One sample to take: which input trees, under which seed, which outputs are compared and where these go."""

    nodes: list[Node]
    input_seed: int
    call_seed: int | None
    which: list[int] = field(default_factory=list)  #: places in the batch; empty: not compared
    offsets: list[int] = field(default_factory=list)


class Measurement:
    """One timing run.

    Args:
        worker: with the candidate loaded and checked.
        reference: of the problem.
        plan: how much to measure.
        facts: of the reference's first trial.
        floors: what the comparison gave on that trial: it says how exact the reference itself is.
        tag: makes this run's inputs its own (attempt id and round).
        timeout_s: for one request.
    """

    def __init__(
        self, worker: Child, reference: Reference, plan: timing.Plan, facts: TrialFacts,
        floors: list[dict[str, Any]], tag: str, timeout_s: float,
    ) -> None:
        self._worker = worker
        self._reference = reference
        self._plan = plan
        self._facts = facts
        self._floors = floors
        self._tag = tag
        self._timeout_s = timeout_s
        self._in_slot = max(aligned(reference.input_bytes), 256)
        self._out_slot = max(aligned(int(facts.facts["output_bytes"])), 256)
        self._sets = max(2, min(INPUT_BUDGET_BYTES // self._in_slot, 1024))
        self._samples: list[TimingSample] = []
        self._brackets: list[timing.Bracket] = []
        self._bracketed: list[int] = []  # index of each bracket's sample
        self._notes: dict[str, Any] = {}

    def run(self) -> Measured:
        """Warm up, measure, compare.

        Raises:
            ChildFailed, ChildDied, ChildTimeout, ProtocolError: the worker's end.
            ReferenceFailed: the referee's.
        """
        base_us, candidate_us = self._with_regions(1, 1, self._warm_up)
        size = self._plan.size(base_us)
        batch = timing.batch_size(min(base_us, candidate_us))
        if batch > 1:
            size = replace(size, calls=max(_LEAST_CALLS, size.calls // _CALLS_IN_BATCH))
        self._notes |= {"blocks_wanted": size.blocks, "calls_per_block": size.calls, "batch": batch, "extended": False}
        finding, speedup = self._with_regions(size.calls, batch, lambda: self._blocks(size, batch))
        return Measured(self._samples, speedup, finding, self._notes)

    def _with_regions(self, calls: int, batch: int, work: Callable[[], _T]) -> _T:
        """Run `work` with shared regions for one block of each side attached."""
        sets = min(self._sets, max(calls * batch, _WARM_SETS))
        self._compared = min(batch, _CHECKED_IN_BATCH)
        places = calls * self._compared
        if places * self._out_slot > _CHECK_ALL_BYTES:
            places = self._compared if self._out_slot > _CHECK_ONE_BYTES else min(calls, 3) * self._compared
        regions = [Region(sets * self._in_slot, "inputs"), *(
            Region(places * self._out_slot, name) for name in ("outputs", "eager", "evidence"))]
        self._sets_now, self._places = sets, places
        inputs, outputs, eager, self._evidence = regions
        self._outputs = outputs
        try:
            self._reference.attach([
                ("inputs", inputs, True), ("outputs", eager, True), ("evidence", self._evidence, False)])
            inputs.forbid_new_writers()
            attach(self._worker, [("inputs", inputs, False), ("outputs", outputs, True)], self._timeout_s)
            return work()
        finally:
            for region in regions:
                region.close()

    def _draw(self, block: int, count: int) -> tuple[list[Node], list[int]]:
        seeds = [derive_seed(self._reference.secret, self._tag, "timed", block, number) for number in range(count)]
        answer = self._reference.ask(
            "draw", {"seeds": seeds, "offsets": [number * self._in_slot for number in range(count)]},
            stage="drawing of timed inputs",
        )
        self._notes["input_generator"] = answer.text("generator")
        return answer.items("nodes"), seeds

    def _warm_up(self) -> tuple[float, float]:
        """Warm both sides; returns their times per call in microseconds."""
        nodes, seeds = self._draw(-1, min(self._sets_now, _WARM_SETS))
        medians = []
        for order, side in enumerate(("eager", "candidate")):
            times: list[float] = []
            wanted = self._plan.warm_calls
            while len(times) < wanted:
                number = len(times)
                pick = number % len(nodes)
                call = _Call([nodes[pick]], seeds[pick], self._seed(-1, number))
                times.append(timing.per_call_us(self._sample(side, call, -1, order, number, warm=True)[0]))
                if side == "eager" and len(times) == self._plan.warm_calls:
                    wanted = self._plan.warmups(statistics.median(times))
                    self._warm_calls = wanted
                elif side == "candidate":
                    wanted = self._warm_calls
            usual_us = statistics.median(times[-3:])
            if usual_us < timing.BATCH_TARGET_US:
                # A lone short call is mostly the cost of waking up; in a row it shows how long it really is.
                row = _Call([nodes[n % len(nodes)] for n in range(_ROW)], seeds[0], self._seed(-1, len(times)))
                sample, _ = self._sample(side, row, -1, order, len(times), warm=True)
                usual_us = min(usual_us, timing.per_call_us(sample))
            medians.append(usual_us)
        return medians[0], medians[1]

    def _seed(self, block: int, repetition: int) -> int | None:
        if not self._facts.facts["stochastic"]:
            return None
        return self._reference.call_seed(self._tag, block, repetition)

    def _blocks(self, size: timing.Size, batch: int) -> tuple[Finding | None, timing.Speedup | None]:
        """Measure until enough blocks are usable; where the machine is busy that takes more of them, up to a limit."""
        self._notes["distinct_inputs_per_block"] = min(self._sets_now, size.calls * batch)
        measured, needed = 0, size.blocks
        while True:
            limit = _BLOCK_LIMIT * needed
            usable, good = 0, [True]
            while usable < needed and measured < limit:
                for block in range(measured, min(limit, measured + needed - usable)):
                    finding = self._block(block, size.calls, batch)
                    if finding is not None:
                        return finding, None
                    measured = block + 1
                told = timing.impossible(self._brackets)
                if told is not None:
                    return Finding(Verdict.TIMING_DISAGREE, told), None
                good = timing.believable(self._brackets)
                usable = len(timing.usable_blocks(self._brackets, good))
                if not usable and measured >= 2 * needed:
                    break  # not a busy machine: this candidate's clock
            self._notes |= {"blocks": measured, "usable_blocks": usable}
            samples = self._marked(good)
            told = timing.disagreement(self._brackets, good, max(_LEAST_BLOCKS, needed // 2))
            if told is not None:
                self._samples = samples
                return Finding(Verdict.TIMING_DISAGREE, told), None
            speedup = timing.speedup(timing.by_block(samples, "eager"), timing.by_block(samples, "candidate"))
            if not self._plan.extends or self._notes["extended"] or speedup.half_width <= timing.MAX_HALF_WIDTH:
                self._samples = samples
                return None, speedup
            self._notes["extended"] = True
            needed = 2 * size.blocks

    def _marked(self, good: list[bool]) -> list[TimingSample]:
        """The samples, with those marked that the judge's clock does not bear out."""
        samples = list(self._samples)
        for index, fine in zip(self._bracketed, good, strict=True):
            if not fine:
                samples[index] = replace(samples[index], flags=f"{samples[index].flags},{timing.EXCLUDED}")
        return samples

    def _block(self, block: int, calls: int, batch: int) -> Finding | None:
        nodes, seeds = self._draw(block, min(self._sets_now, calls * batch))
        chosen = self._choose(calls)
        at_once = len(chosen) == calls and batch == 1  # nothing to hide: one request does both
        planned = []
        for repetition in range(calls):
            picks = [(repetition * batch + number) % len(nodes) for number in range(batch)]
            call = _Call([nodes[pick] for pick in picks], seeds[picks[0]], self._seed(block, repetition))
            if repetition in chosen:
                first = chosen.index(repetition) * self._compared
                call.which = sorted(secrets.SystemRandom().sample(range(batch), self._compared))
                call.offsets = [(first + number) * self._out_slot for number in range(self._compared)]
            planned.append(call)
        outputs: dict[tuple[str, int], list[Any]] = {}
        for order, side in enumerate(("eager", "candidate") if block % 2 == 0 else ("candidate", "eager")):
            for repetition, call in enumerate(planned):
                _, told = self._sample(side, call, block, order, repetition, at_once=at_once)
                if told is not None:
                    outputs[side, repetition] = told
                self._brackets.append(self._last)
                self._bracketed.append(len(self._samples) - 1)
        for repetition in chosen:
            for number, offset in enumerate(planned[repetition].offsets):
                finding = self._compare(
                    outputs["candidate", repetition], outputs["eager", repetition], number, offset)
                if finding is not None:
                    return Finding(
                        Verdict.CONTRACT_VIOLATION,
                        f"timed call {repetition} of block {block}: {finding.reason}, after passing the untimed checks",
                    )
        return None

    def _choose(self, calls: int) -> list[int]:
        """Which samples of a block are compared: all, or first, last and a random one, or one."""
        if self._places >= calls * self._compared:
            return list(range(calls))
        if self._places < 3 * self._compared:
            return [secrets.randbelow(calls)]
        return sorted({0, calls - 1, secrets.randbelow(calls)})

    def _sample(
        self, side: str, call: _Call, block: int, order: int, repetition: int, *, warm: bool = False,
        at_once: bool = False,
    ) -> tuple[TimingSample, list[Any] | None]:
        stage = "warm-up" if warm else f"timed call {repetition} of block {block}"
        self._ask(side, "prepare", {"nodes": call.nodes, "seed": call.call_seed, "poison": None, "reserve": []},
                  stage)
        begin = time.perf_counter_ns()
        answer = self._ask(side, "go", {"offsets": call.offsets if at_once else None, "inspect": False, "hold": False},
                           stage)
        outer_ns = time.perf_counter_ns() - begin
        told = answer
        if call.offsets and not at_once:
            begin = time.perf_counter_ns()
            told = self._ask(side, "collect", {"offsets": call.offsets, "which": call.which}, stage)
            outer_ns += time.perf_counter_ns() - begin
        outputs: list[Any] | None = None
        if call.offsets:
            outputs = told.items("outputs", timing.MAX_BATCH)
            if side == "candidate":
                if not told.flag("copied") or len(outputs) != len(call.offsets):
                    raise ProtocolError("outputs of a timed call were not copied out")
                self._evidence.copy_from(self._outputs, call.offsets[0], call.offsets[-1] + self._out_slot)
        self._last = timing.Bracket(
            side, block, outer_ns / 1000.0, answer.number("host_us"), answer.optional_number("device_us"))
        sample = TimingSample(
            side=side, block=block, order_in_block=order, repetition=repetition, warmup=warm, batch=len(call.nodes),
            device_us=self._last.device_us, host_us=self._last.host_us,
            checked=side == "candidate" and bool(call.offsets), input_seed=call.input_seed,
            flags=f"bracket_us:{self._last.outer_us:.1f}",
        )
        self._samples.append(sample)
        return sample, outputs

    def _ask(self, side: str, kind: str, body: dict[str, Any], stage: str) -> Frame:
        if side == "eager":
            return self._reference.ask(kind, body, stage=stage, timeout_s=self._timeout_s)
        return self._worker.ask(kind, body, timeout_s=self._timeout_s, stage=stage)

    def _compare(self, got: list[Any], eager: list[Any], number: int, offset: int) -> Finding | None:
        node, finding = check_output(got[number], self._facts.output, offset, offset + self._out_slot)
        if finding is not None or not tensors(node):
            return finding
        answer = self._reference.ask("compare", {"node": node, "own": eager[number]}, stage="comparison")
        return check_values(answer.items("leaves"), factor=TIMED_FACTOR, floor_from=self._floors)
