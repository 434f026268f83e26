"""One timed sample between processes: inputs in, calls, outputs out, with the judge's own clock around all of it."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dice_core.arena import timing
from dice_core.arena.children import Child
from dice_core.arena.correctness import TIMED_FACTOR, Finding, check_output, check_values
from dice_core.arena.frames import Frame
from dice_core.arena.reference import Reference, TrialFacts, attach
from dice_core.arena.regions import Region
from dice_core.arena.trees import PIECE, Node, aligned, cut, derive_seed, tensors, total_bytes
from dice_core.errors import ProtocolError
from dice_core.records import TimingSample

if TYPE_CHECKING:
    from collections.abc import Iterator

SIDES = ("eager", "candidate")
#: Of a tensor with more elements than these pieces hold, so many random pieces are compared. Who leaves out a share f
#: of it goes unseen with probability (1 - f)^64.
_PIECES = 64
_random = secrets.SystemRandom()


@dataclass(frozen=True)
class Place:
    """Where a sample stands in a measurement."""

    block: int
    order: int
    repetition: int
    warmup: bool = False
    end_to_end: bool = False

    def __str__(self) -> str:
        kind = "warm-up" if self.warmup else "row" if self.end_to_end else f"block {self.block}, timed call"
        return f"{kind} {self.block if self.end_to_end else self.repetition}"


@dataclass
class Call:
    """One sample to take: which input trees, under which seed, which outputs are compared and where these go."""

    nodes: list[Node]
    input_seed: int
    call_seed: int | None
    which: list[int] = field(default_factory=list)  #: places in the batch; empty: not compared
    offsets: list[int] = field(default_factory=list)
    pieces: list[list[int]] = field(default_factory=list)  #: of each output tensor: where the compared pieces begin
    at_once: bool = False  #: every call is compared, so one request may both run and copy out


@dataclass(frozen=True)
class Taken:
    """A sample, the host time its launching took, and the trees of the outputs that were copied out."""

    sample: TimingSample
    launch_us: float
    outputs: list[Any]


class Exchange:
    """Takes samples of both sides.

    Args:
        worker: with the candidate loaded and checked.
        reference: of the problem.
        facts: of the reference's first trial.
        floors: what the comparison gave on that trial: it says how exact the reference itself is.
        tag: makes this run's inputs its own (attempt id and round).
        timeout_s: for one request.
    """

    def __init__(
        self, worker: Child, reference: Reference, facts: TrialFacts, floors: list[dict[str, Any]], tag: str,
        timeout_s: float,
    ) -> None:
        self._worker = worker
        self._reference = reference
        self._facts = facts
        self._floors = floors
        self._tag = tag
        self._timeout_s = timeout_s
        self._outputs: Region
        self._evidence: Region
        self.samples: list[TimingSample] = []
        self.generator = ""  #: how timed inputs were drawn
        self.in_slot = max(aligned(reference.slot_bytes), 256)
        self.call_bytes = reference.input_bytes + int(facts.facts["output_bytes"]) + 1  #: on the device, of one call
        self._form = cut(facts.output, _PIECES * PIECE)  #: of what is compared of an output
        self.out_slot = max(aligned(total_bytes(self._form)), 256)

    @contextmanager
    def regions(self, input_sets: int, output_places: int) -> Iterator[None]:
        """Shared regions for so many input sets and compared outputs of each side, attached to both."""
        regions = [Region(input_sets * self.in_slot, "inputs"), *(
            Region(output_places * self.out_slot, name) for name in ("outputs", "eager", "evidence"))]
        inputs, self._outputs, eager, self._evidence = regions
        try:
            self._reference.attach([
                ("inputs", inputs, True), ("outputs", eager, True), ("evidence", self._evidence, False)])
            inputs.forbid_new_writers()
            attach(self._worker, [("inputs", inputs, False), ("outputs", self._outputs, True)], self._timeout_s)
            yield
        finally:
            for region in regions:
                region.close()

    def choose(self, call: Call, compared: int, first: int) -> None:
        """Choose what is compared of a call: `compared` of its outputs, to the places from `first` on, in pieces."""
        call.which = sorted(_random.sample(range(len(call.nodes)), compared))
        call.offsets = [(first + number) * self.out_slot for number in range(compared)]
        sizes = [math.prod(leaf["shape"]) for leaf in tensors(self._facts.output)]
        call.pieces = [
            sorted(_random.randrange(size - PIECE + 1) for _ in range(_PIECES)) if size > _PIECES * PIECE else []
            for size in sizes
        ]
        call.at_once = call.at_once and not any(call.pieces)

    def draw(self, label: object, count: int) -> tuple[list[Node], list[int]]:
        """Fresh input sets in the input region: their trees and seeds."""
        seeds = [derive_seed(self._reference.secret, self._tag, "timed", label, number) for number in range(count)]
        answer = self._reference.ask(
            "draw", {"seeds": seeds, "offsets": [number * self.in_slot for number in range(count)]},
            stage="drawing of timed inputs",
        )
        self.generator = answer.text("generator")
        return answer.items("nodes"), seeds

    def call_seed(self, *labels: object) -> int | None:
        """Seed of torch's generators for a call, where the reference draws itself."""
        return self._reference.call_seed(self._tag, *labels) if self._facts.facts["stochastic"] else None

    def take(self, side: str, call: Call, place: Place, spin_us: float) -> Taken:
        """Take one sample and keep it.

        Raises:
            ChildFailed, ChildDied, ChildTimeout, ProtocolError: the worker's end.
            ReferenceFailed: the referee's.
        """
        stage = str(place)
        at_once = call.at_once and bool(call.offsets)
        begin = time.perf_counter_ns()
        self._ask(side, "prepare", {"nodes": call.nodes, "seed": call.call_seed, "poison": None, "reserve": []}, stage)
        answer = told = self._ask(side, "go", {
            "spin_us": spin_us, "offsets": call.offsets if at_once else None, "inspect": False, "hold": False}, stage)
        if call.offsets and not at_once:
            told = self._ask(
                side, "collect", {"offsets": call.offsets, "which": call.which, "pieces": call.pieces}, stage)
        judge_us = (time.perf_counter_ns() - begin) / 1000.0
        outputs = told.items("outputs", timing.MAX_ROW) if call.offsets else []
        if side == "candidate" and call.offsets:
            if not told.flag("copied") or len(outputs) != len(call.offsets):
                raise ProtocolError("outputs of a timed call were not copied out")
            self._evidence.copy_from(self._outputs, call.offsets[0], call.offsets[-1] + self.out_slot)
        sample = TimingSample(
            side=side, block=place.block, order_in_block=place.order, repetition=place.repetition,
            warmup=place.warmup, batch=len(call.nodes), device_us=answer.optional_number("device_us"),
            host_us=answer.number("host_us"), checked=side == "candidate" and bool(call.offsets),
            input_seed=call.input_seed, judge_us=judge_us, end_to_end=place.end_to_end,
            flags="exposed" if spin_us and answer.flag("exposed") else "")
        self.samples.append(sample)
        return Taken(sample, answer.number("launch_us"), outputs)

    def compare(self, calls: Sequence[Call], ours: Sequence[Taken], theirs: Sequence[Taken]) -> Finding | None:
        """Compare what was copied out of the candidate's calls with the eager side's outputs of the same calls."""
        nodes, owns = [], []
        for call, got, eager in zip(calls, ours, theirs, strict=True):
            for told, own, offset in zip(got.outputs, eager.outputs, call.offsets, strict=True):
                node, finding = check_output(told, self._form, offset, offset + self.out_slot)
                if finding is not None:
                    return finding
                nodes.append(node)
                owns.append(own)
        if not nodes or not tensors(nodes[0]):
            return None
        answer = self._reference.ask("compare_timed", {"nodes": nodes, "owns": owns}, stage="comparison")
        return check_values(answer.items("leaves"), factor=TIMED_FACTOR, floor_from=self._floors,
                            steps=self._reference.steps)

    def _ask(self, side: str, kind: str, body: dict[str, Any], stage: str) -> Frame:
        if side == "eager":
            return self._reference.ask(kind, body, stage=stage, timeout_s=self._timeout_s)
        return self._worker.ask(kind, body, timeout_s=self._timeout_s, stage=stage)
