"""Timed samples between processes: inputs in, calls, outputs out, with the judge's own clock around all of it."""

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
#: Distinct input sets drawn at once: they take at most this much of a region, and are no more than so many.
_INPUT_BUDGET_BYTES = 512 << 20
_MOST_SETS = 4096
#: Outputs that a side keeps until the judge says which it wants: so much of them in one request, or one sample.
_KEPT_BYTES = {"cpu": 32 << 20, "cuda": 4 << 30}
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


@dataclass(frozen=True)
class Taken:
    """A sample, the host time its launching took, and the trees of the outputs that were copied out."""

    sample: TimingSample
    launch_us: float
    outputs: list[Any]


Pieces = Sequence[list[int]]


class Exchange:
    """Takes samples of both sides.

    Args:
        worker: with the candidate loaded and checked.
        reference: of the problem.
        facts: of the reference's first trial.
        floors: what the comparison gave on that trial: it says how exact the reference itself is.
        tag: makes this run's inputs its own (attempt id and round).
        timeout_s: for one request.
        device: `cpu` or `cuda`.
    """

    def __init__(
        self, worker: Child, reference: Reference, facts: TrialFacts, floors: list[dict[str, Any]], tag: str,
        timeout_s: float, device: str,
    ) -> None:
        self._worker = worker
        self._reference = reference
        self._facts = facts
        self._floors = floors
        self._tag = tag
        self._timeout_s = timeout_s
        self._device = device
        self._outputs: Region
        self._evidence: Region
        self.samples: list[TimingSample] = []
        self.generator = ""  #: how timed inputs were drawn
        self.in_slot = max(aligned(reference.slot_bytes), 256)
        self.most_sets = min(_INPUT_BUDGET_BYTES // self.in_slot, reference.most_draws or _MOST_SETS)
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
        """Choose what is compared of a call: `compared` of its outputs, to the places from `first` on."""
        call.which = sorted(_random.sample(range(len(call.nodes)), compared))
        call.offsets = [(first + number) * self.out_slot for number in range(compared)]

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

    def take(
        self, side: str, calls: Sequence[Call], places: Sequence[Place], spin_us: float, pieces: Pieces = ()
    ) -> list[Taken]:
        """Take samples of one side, one after the other, and keep them. `pieces` are the same for both sides.

        Raises:
            ImpossibleTime: a time that no clock can have shown.
            ChildFailed, ChildDied, ChildTimeout, ProtocolError: the worker's end.
            ReferenceFailed: the referee's.
        """
        size = max(1, _KEPT_BYTES[self._device] // (len(calls[0].nodes) * self.call_bytes))
        taken = []
        for start in range(0, len(calls), size):
            taken += self._request(side, calls[start : start + size], places[start : start + size], spin_us, pieces)
        return taken

    def _request(
        self, side: str, calls: Sequence[Call], places: Sequence[Place], spin_us: float, pieces: Pieces
    ) -> list[Taken]:
        stage = str(places[0])
        picks = [[number, which] for number, call in enumerate(calls) for which in call.which]
        offsets = [offset for call in calls for offset in call.offsets]
        begin = time.perf_counter_ns()
        answer = self._ask(side, "run", {
            "samples": [{"nodes": call.nodes, "seed": call.call_seed} for call in calls], "spin_us": spin_us}, stage)
        outputs: list[Any] = []
        if picks:
            told = self._ask(side, "collect", {"places": picks, "offsets": offsets, "pieces": list(pieces)}, stage)
            outputs = told.items("outputs", len(picks))
        judge_us = (time.perf_counter_ns() - begin) / 1000.0
        if side == "candidate" and picks:
            if not told.flag("copied") or len(outputs) != len(picks):
                raise ProtocolError("outputs of a timed call were not copied out")
            self._evidence.copy_from(self._outputs, min(offsets), max(offsets) + self.out_slot)
        readings = [Frame("reading", one) for one in answer.items("readings", len(calls)) if isinstance(one, dict)]
        if len(readings) != len(calls):
            raise ProtocolError(f"{len(readings)} readings of {len(calls)} samples")
        waiting = iter(outputs)
        taken = [
            Taken(self._sample(side, call, place, reading, spin_us, judge_us if len(calls) == 1 else None),
                  reading.number("launch_us"), [next(waiting) for _ in call.which])
            for call, place, reading in zip(calls, places, readings, strict=True)
        ]
        self.samples += [one.sample for one in taken]
        timing.check_possible([one.sample for one in taken], judge_us)
        return taken

    def _sample(
        self, side: str, call: Call, place: Place, reading: Frame, spin_us: float, judge_us: float | None
    ) -> TimingSample:
        return TimingSample(
            side=side, block=place.block, order_in_block=place.order, repetition=place.repetition,
            warmup=place.warmup, batch=len(call.nodes), device_us=reading.optional_number("device_us"),
            host_us=reading.number("host_us"), checked=side == "candidate" and bool(call.which),
            input_seed=call.input_seed, judge_us=judge_us, end_to_end=place.end_to_end,
            flags="exposed" if spin_us and reading.flag("exposed") else "")

    def pieces(self) -> Pieces:
        """Of each output tensor, where the pieces begin that are compared; none for one that is compared whole."""
        sizes = [math.prod(leaf["shape"]) for leaf in tensors(self._facts.output)]
        return [
            sorted(_random.randrange(size - PIECE + 1) for _ in range(_PIECES)) if size > _PIECES * PIECE else []
            for size in sizes
        ]

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
                            jumps=self._reference.jumps)

    def _ask(self, side: str, kind: str, body: dict[str, Any], stage: str) -> Frame:
        if side == "eager":
            return self._reference.ask(kind, body, stage=stage, timeout_s=self._timeout_s)
        return self._worker.ask(kind, body, timeout_s=self._timeout_s, stage=stage)
