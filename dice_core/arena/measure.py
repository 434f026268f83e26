"""Interleaved timing of one candidate against the eager reference, every timed call on fresh values.

The judge hands the turn to one side at a time. Outputs of timed calls are copied out and compared afterwards; which
ones, the worker cannot know beforehand. Order of things: warm-up, blocks of single calls, rows of calls (`timing.py`).
"""

from __future__ import annotations

import secrets
import statistics
from dataclasses import dataclass, field, replace
from typing import Any

from dice_core.arena import timing
from dice_core.arena.children import Child
from dice_core.arena.correctness import Finding
from dice_core.arena.exchange import SIDES, Call, Exchange, Place, Taken
from dice_core.arena.reference import Reference, TrialFacts
from dice_core.arena.telemetry import Telemetry
from dice_core.arena.trees import Node
from dice_core.records import TimingSample, Verdict

#: Inputs and outputs of the calls of one sample take at most this much; three times over, in turn.
CALLS_BUDGET_BYTES = {"cpu": 128 << 20, "cuda": 8 << 30}
#: Outputs that are compared of one block or row of each side: so many bytes, at least one output.
_COMPARED_BYTES = 16 << 20
_WARM_SETS = 3
_WARM_ROW = 8
#: A row holds all its outputs at once: its first ones, into memory that is new to the process, are page faults.
_WARM_ROWS = 2
#: Blocks with most samples of a side exposed, in spite of ever longer spins, after which hiding is given up.
_GIVE_UP_AFTER = 4
#: A batched sample averages many calls already, so a block needs this many times fewer, but at least so many.
_CALLS_IN_BATCH = 5
_LEAST_CALLS = 3
#: Of the calls of one sample at most this many outputs are compared; which ones is said only after the clock stopped.
_CHECKED_IN_BATCH = 8


@dataclass
class Measured:
    """What timing gave. `finding` is set when it ended in another verdict than CORRECT."""

    samples: list[TimingSample]
    basis: str | None = None
    speedup: timing.Speedup | None = None
    finding: Finding | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Warm:
    """What warming up one side showed, per call: time alone, time from end to end, host time of launching."""

    call_us: float
    end_to_end_us: float
    launch_us: float


class _Stopped(Exception):
    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


class Measurement:
    """One timing run. Arguments are those of `Exchange`, and the plan: how much to measure."""

    def __init__(
        self, worker: Child, reference: Reference, plan: timing.Plan, facts: TrialFacts,
        floors: list[dict[str, Any]], tag: str, timeout_s: float, device: str,
    ) -> None:
        self._exchange = Exchange(worker, reference, facts, floors, tag, timeout_s, device)
        self._plan = plan
        self._device = device
        self._is_cuda = device == "cuda"
        self._notes: dict[str, Any] = {}
        self._moved_bytes = int(facts.facts["input_bytes"]), int(facts.facts["output_bytes"])
        self._device_facts = reference.device_facts
        self._telemetry = Telemetry(str(reference.device_facts.get("uuid", "")))
        self._spin_us = 0.0
        self._exposures = 0
        self._exposed = False  #: a side waits for the device in its calls: no spin can hide launching

    def run(self) -> Measured:
        """Warm up, measure blocks and rows, compare.

        Raises:
            ChildFailed, ChildDied, ChildTimeout, ProtocolError: the worker's end.
            ReferenceFailed: the referee's.
        """
        measured = Measured(self._exchange.samples, notes=self._notes)
        try:
            measured.basis, measured.speedup = self._run()
        except timing.ImpossibleTime as wrong:
            measured.finding = Finding(Verdict.TIMING_DISAGREE, str(wrong))
        except _Stopped as stopped:
            measured.finding = stopped.finding
        self._notes |= {"input_generator": self._exchange.generator, "telemetry": self._telemetry.summary()}
        return measured

    def _run(self) -> tuple[str, timing.Speedup]:
        warm = self._warm_up()
        size = self._plan.size(warm["eager"].call_us)
        batch = self._calls(timing.batch_size(min(one.call_us for one in warm.values())))
        if batch > 1:
            size = replace(size, calls=max(_LEAST_CALLS, size.calls // _CALLS_IN_BATCH))
        launch_us = max(one.launch_us for one in warm.values())
        self._spin_us = timing.spin_us(launch_us, batch) if self._is_cuda else 0.0
        self._notes |= {"calls_per_block": size.calls, "batch": batch, "extended": False}
        basis = timing.DEVICE if self._is_cuda else timing.HOST
        speedup = self._blocks(size, batch, basis)
        proof = self._rows(timing.row_calls(*(warm[side].end_to_end_us for side in SIDES)), basis)
        if not proof.borne_out or self._exposed:
            basis = timing.END_TO_END if proof.row_borne_out else timing.JUDGE
            speedup = timing.measured(self._exchange.samples, basis)
        if self._device_facts and batch == 1:  # a batch may find its inputs in the cache
            floor_us = timing.floor_us(*self._moved_bytes, self._device_facts)
            claimed_us = timing.median_us(self._exchange.samples, "candidate", basis)
            self._notes["floor"] = {"us": floor_us, "below": claimed_us < timing.FLOOR_SHARE * floor_us}
        return basis, speedup

    def _sets(self, wanted: int) -> int:
        """Input sets to draw at once; with fewer than wanted they repeat, which is recorded."""
        return max(2, min(self._exchange.most_sets, wanted)) if wanted > 1 else 1

    def _calls(self, wanted: int) -> int:
        """Calls of one sample: inputs and outputs fit on the device together, each call has an input set of its own."""
        return max(1, min(wanted, self._sets(wanted), CALLS_BUDGET_BYTES[self._device] // self._exchange.call_bytes))

    # ---- warm-up -------------------------------------------------------------------------------------------------

    def _warm_up(self) -> dict[str, _Warm]:
        sets = self._sets(_WARM_SETS)
        with self._exchange.regions(sets, 1):
            drawn = self._exchange.draw("warm-up", sets)
            eager = self._warm_side("eager", *drawn, wanted=None)
            candidate = self._warm_side("candidate", *drawn, wanted=self._wanted)
        return {"eager": eager, "candidate": candidate}

    def _warm_side(self, side: str, nodes: list[Node], seeds: list[int], wanted: int | None) -> _Warm:
        order = SIDES.index(side)
        taken: list[Taken] = []
        while len(taken) < (wanted or self._plan.warm_calls):
            number = len(taken)
            pick = number % len(nodes)
            call = Call([nodes[pick]], seeds[pick], self._exchange.call_seed("warm-up", number))
            taken.append(self._take(side, call, Place(-1, order, number, warmup=True), 0.0))
            if side == "eager" and len(taken) == self._plan.warm_calls and wanted is None:
                usual_us = statistics.median(one.sample.call_us for one in taken)
                wanted = self._wanted = self._plan.warmups(usual_us)  # by the baseline alone
        late = taken[len(taken) // 2 :]
        warm = _Warm(*(statistics.median(values) for values in zip(*(
            (one.sample.call_us, one.sample.host_us, one.launch_us) for one in late), strict=True)))
        if warm.call_us >= timing.BATCH_TARGET_US:
            return warm
        # A lone short call is mostly the cost of waking up; in a row it shows how long it really is.
        row = Call([nodes[n % len(nodes)] for n in range(_WARM_ROW)], seeds[0], self._exchange.call_seed("warm-up"))
        spin_us = timing.spin_us(warm.launch_us, _WARM_ROW) if self._is_cuda else 0.0
        hidden = self._take(side, row, Place(-1, order, len(taken), warmup=True), spin_us)
        plain = self._take(side, row, Place(-1, order, len(taken) + 1, warmup=True), 0.0)
        return _Warm(
            min(warm.call_us, hidden.sample.call_us),
            min(warm.end_to_end_us, plain.sample.host_us / _WARM_ROW), plain.launch_us / _WARM_ROW)

    # ---- blocks --------------------------------------------------------------------------------------------------

    def _blocks(self, size: timing.Size, batch: int, basis: str) -> timing.Speedup:
        """Blocks of single calls; once more as many where the interval is wider than the plan wants."""
        sets = self._sets(size.calls * batch)
        places = max(1, _COMPARED_BYTES // self._exchange.out_slot)
        compared = min(batch, _CHECKED_IN_BATCH, places)
        chosen_most = min(size.calls, places // compared)
        self._notes["distinct_inputs_per_block"] = sets
        with self._exchange.regions(sets, chosen_most * compared):
            for block in range(size.blocks):
                self._block(block, size.calls, batch, sets, chosen_most, compared)
            speedup = timing.measured(self._exchange.samples, basis)
            if self._plan.extends and speedup.half_width > timing.MAX_HALF_WIDTH:
                self._notes["extended"] = True
                for block in range(size.blocks, 2 * size.blocks):
                    self._block(block, size.calls, batch, sets, chosen_most, compared)
                speedup = timing.measured(self._exchange.samples, basis)
        self._notes["blocks"] = speedup.n_blocks
        self._notes["spin_us"] = round(self._spin_us, 1)
        return speedup

    def _block(self, block: int, calls: int, batch: int, sets: int, chosen_most: int, compared: int) -> None:
        nodes, seeds = self._exchange.draw(block, sets)
        chosen = _choose(calls, chosen_most)
        planned = []
        for repetition in range(calls):
            picks = [(repetition * batch + number) % sets for number in range(batch)]
            call = Call([nodes[pick] for pick in picks], seeds[picks[0]], self._exchange.call_seed(block, repetition))
            if repetition in chosen:
                self._exchange.choose(call, compared, chosen.index(repetition) * compared)
            planned.append(call)
        pieces = self._exchange.pieces()
        taken: dict[str, list[Taken]] = {}
        readings = [self._telemetry.read()]
        for order, side in enumerate(SIDES if block % 2 == 0 else reversed(SIDES)):
            taken[side] = self._exchange.take(
                side, planned, [Place(block, order, repetition) for repetition in range(calls)], self._spin_us, pieces)
            readings.append(self._telemetry.read())
        self._telemetry.note(readings)
        self._adapt_spin(taken)
        self._compare(planned, taken, f"block {block}")

    def _adapt_spin(self, taken: dict[str, list[Taken]]) -> None:
        """A longer spin where launching was not hidden; none worth speaking of where no spin can hide it."""
        shares = [statistics.fmean(bool(one.sample.flags) for one in side) for side in taken.values()]
        if self._exposed or not any(shares):
            return
        self._spin_us = timing.longer_spin_us(self._spin_us)
        if max(shares) > 0.5:
            self._exposures += 1
        if self._exposures >= _GIVE_UP_AFTER:
            self._exposed, self._spin_us = True, timing.spin_us(0.0, 1)
            self._notes["launching"] = "not hidden: a side waits for the device inside its calls"

    # ---- rows ----------------------------------------------------------------------------------------------------

    def _rows(self, calls: int, basis: str) -> timing.Proof:
        """Rows of calls with nothing hidden, and what they say about the candidate's claims; in doubt as many again."""
        calls = self._calls(calls)
        compared = min(calls, _CHECKED_IN_BATCH, max(1, _COMPARED_BYTES // self._exchange.out_slot))
        claimed_us = timing.median_us(self._exchange.samples, "candidate", basis)
        with self._exchange.regions(calls, compared):
            for start, stop in ((-_WARM_ROWS, self._plan.rows), (self._plan.rows, 2 * self._plan.rows)):
                for number in range(start, stop):
                    self._row(number, calls, compared)
                rows = list(timing.rows_of(self._exchange.samples).values())
                proof = timing.proof(rows, claimed_us, self._device)
                if proof.borne_out and proof.lie is None:
                    break
        end_to_end = timing.measured(self._exchange.samples, timing.END_TO_END)
        self._notes["rows"] = {
            "rows": len(rows), "calls": calls, "judge_us": [proof.low_us, proof.us, proof.high_us],
            "claimed_us": proof.claimed_row_us, "borne_out": proof.borne_out,
            "row_borne_out": proof.row_borne_out, "speedup": end_to_end.point,
            "speedup_low": end_to_end.low, "speedup_high": end_to_end.high}
        if proof.lie is not None:
            raise _Stopped(Finding(Verdict.TIMING_DISAGREE, proof.lie))
        return proof

    def _row(self, number: int, calls: int, compared: int) -> None:
        nodes, seeds = self._exchange.draw(f"row {number}", calls)
        call = Call(nodes, seeds[0], self._exchange.call_seed("row", number))
        self._exchange.choose(call, compared, 0)
        pieces = self._exchange.pieces()
        taken = {
            side: self._exchange.take(
                side, [call], [Place(number, order, 0, warmup=number < 0, end_to_end=True)], 0.0, pieces)
            for order, side in enumerate(SIDES if number % 2 == 0 else reversed(SIDES))
        }
        self._compare([call], taken, f"row {number}")

    # ---- both ----------------------------------------------------------------------------------------------------

    def _take(self, side: str, call: Call, place: Place, spin_us: float) -> Taken:
        return self._exchange.take(side, [call], [place], spin_us)[0]

    def _compare(self, calls: list[Call], taken: dict[str, list[Taken]], where: str) -> None:
        finding = self._exchange.compare(calls, taken["candidate"], taken["eager"])
        if finding is not None:
            reason = f"timed call in {where}: {finding.reason}, after passing the untimed checks"
            raise _Stopped(Finding(Verdict.CONTRACT_VIOLATION, reason))


def _choose(calls: int, most: int) -> list[int]:
    """Which samples of a block are compared: all, or so many at random, first and last among them if there is room."""
    if most >= calls:
        return list(range(calls))
    fixed = [0, calls - 1] if most > 2 else []
    others = [number for number in range(calls) if number not in fixed]
    return sorted(fixed + secrets.SystemRandom().sample(others, most - len(fixed)))
