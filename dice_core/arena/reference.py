"""The judge's view of one problem: its referee process, the secret seed, the trials that its candidates share."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dice_core.arena.ahead import Ahead
from dice_core.arena.children import Child, ChildDied, ChildFailed, ChildTimeout
from dice_core.arena.correctness import LARGE_BYTES, LARGE_TRIALS, TRIALS, Trial
from dice_core.arena.frames import Frame
from dice_core.arena.regions import Region
from dice_core.arena.sandbox import Limits
from dice_core.arena.trees import Node, derive_seed
from dice_core.errors import ArenaError, ProtocolError, UnfitError

#: Seconds that drawing the inputs of one block through the problem's own generator may take, and the fewest sets.
_DRAW_S = 0.03
_LEAST_DRAWS = 8


class ReferenceFailed(ArenaError):
    """The reference cannot do its part: the task is at fault, not the candidate."""


@dataclass(frozen=True)
class Terms:
    """What every child of an evaluation is told."""

    device: str
    threads: int
    load_timeout_s: float
    check_timeout_s: float


@dataclass(frozen=True)
class TrialFacts:
    """One trial that counts, and what the reference did on it."""

    trial: Trial
    facts: Mapping[str, Any]

    @property
    def output(self) -> Node:
        """Form of the expected output."""
        node: Node = self.facts["output"]
        return node


def regions_body(regions: Sequence[tuple[str, Region, bool]]) -> dict[str, Any]:
    """Body of an attach request for (name, region, writable) triples."""
    return {"regions": [{"name": name, "size": region.size, "write": write} for name, region, write in regions]}


@contextlib.contextmanager
def descriptors(regions: Sequence[tuple[str, Region, bool]]) -> Iterator[list[int]]:
    """Descriptors to send along, read-only ones for regions that are not writable."""
    fds: list[int] = []
    try:
        for _, region, write in regions:
            fds.append(os.dup(region.fd) if write else region.read_only())
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def attach(child: Child, regions: Sequence[tuple[str, Region, bool]], timeout_s: float) -> None:
    """Give regions to a child."""
    with descriptors(regions) as fds:
        child.ask("attach", regions_body(regions), timeout_s=timeout_s, fds=fds)


class Reference:
    """A running referee for one problem.

    Args:
        nursery: where the referee comes from.
        limits: of the referee.
        source: the problem's source.
        terms: what children are told.

    Raises:
        ReferenceFailed: the problem cannot be imported or constructed.
        UnfitError: the device does not start in a child.
    """

    def __init__(self, nursery: Ahead, limits: Limits, source: str, terms: Terms) -> None:
        self._nursery = nursery
        self._limits = limits
        self._source = source
        self._terms = terms
        self.secret = secrets.token_hex(16)
        self.skipped: dict[int, str] = {}
        self.traits: list[dict[str, Any]] = []
        self.jumps = 0.0  #: relative L2 error that an answer which jumps may cost, 0 for one that does not
        self._counted: list[TrialFacts] | None = None
        self._start()

    def _start(self) -> None:
        self.child = self._nursery.spawn("referee", self._limits)
        try:
            loaded = self.child.ask(
                "load",
                {
                    "source": self._source, "device": self._terms.device, "threads": self._terms.threads,
                    "seed": self.model_seed, "base_seed": derive_seed(self.secret, "base"),
                },
                timeout_s=self._terms.load_timeout_s, stage="import of the reference",
            )
            self.input_bytes = loaded.whole("input_bytes")
            #: most timed input sets that the problem's own generator should draw at once, None where it is not needed
            self.most_draws = None if loaded.flag("all_plain") else max(
                _LEAST_DRAWS, int(_DRAW_S / max(loaded.number("draw_s"), 1e-6)))
            self.slot_bytes = loaded.whole("slot_bytes")  #: of these, what a timed input set takes in a region
            self.device_facts = loaded.mapping("device")  #: `uuid`, `l2_bytes` and `peak_bytes_per_us`, on CUDA
            self.state_region = Region(loaded.whole("state_bytes"), "state")
            attach(self.child, [("state", self.state_region, True)], self._terms.load_timeout_s)
            told = self.child.ask("state", timeout_s=self._terms.load_timeout_s)
            self.state_region.forbid_new_writers()
        except ChildFailed as error:
            self.child.end()
            if error.category == "device":
                raise UnfitError(f"{self._terms.device} does not start in a sandboxed child: {error.text}") from error
            raise ReferenceFailed(error.text) from error
        except (ChildDied, ChildTimeout, ProtocolError) as error:
            self.child.end()
            raise ReferenceFailed(f"reference: {error}") from error
        self.init: Node = told.mapping("init")
        self.state: Node | None = told.body["state"]
        self.other_state: Node | None = told.body["other"]  #: of the trial of kind `weights`
        self.state_order = told.items("order")  #: names as the reference registers them

    @property
    def model_seed(self) -> int:
        """Seed under which Model and ModelNew are constructed."""
        return derive_seed(self.secret, "model")

    def call_seed(self, *labels: object) -> int:
        """Seed of torch's generators during a call; the worker may know it, for references that draw themselves."""
        return derive_seed(self.secret, "call", *labels)

    def ask(self, kind: str, body: Mapping[str, Any], *, stage: str, timeout_s: float | None = None) -> Frame:
        """A request to the referee.

        Raises:
            ReferenceFailed: it fails, dies or does not answer.
        """
        try:
            return self.child.ask(kind, body, timeout_s=timeout_s or self._terms.check_timeout_s, stage=stage)
        except (ChildFailed, ChildDied, ChildTimeout, ProtocolError) as error:
            raise ReferenceFailed(f"reference, {stage}: {error}") from error

    def attach(self, regions: Sequence[tuple[str, Region, bool]]) -> None:
        """Give regions to the referee."""
        try:
            attach(self.child, regions, self._terms.check_timeout_s)
        except ArenaError as error:
            raise ReferenceFailed(f"reference: {error}") from error

    def trials(self) -> list[TrialFacts]:
        """The trials that count, made once; those that do not are in `skipped` with the reason.

        Raises:
            ReferenceFailed: the reference does not run on its own inputs.
        """
        if self._counted is None:
            counted: list[TrialFacts] = []
            left = list(TRIALS)
            while left:
                trial = left.pop(0)
                facts = None if trial.index in self.skipped else self.make_trial(trial)
                if facts is not None:
                    counted.append(TrialFacts(trial, facts))
                    if trial.index == 0 and int(facts["input_bytes"]) + int(facts["output_bytes"]) >= LARGE_BYTES:
                        left = list(LARGE_TRIALS[1:])
            self._counted = counted
            self.jumps = max((float(one.facts["jumps"]) for one in counted), default=0.0)
        return self._counted

    def make_trial(self, trial: Trial) -> Mapping[str, Any] | None:
        """Facts of a trial, None when it does not count. A trial that the referee no longer holds is made again."""
        try:
            answer = self.child.ask(
                "trial",
                {
                    "index": trial.index, "kind": trial.kind,
                    "seed": derive_seed(self.secret, "trial", trial.draw_index),
                    "alter_seed": derive_seed(self.secret, "alter", trial.index),
                    "call_seed": self.call_seed("trial", trial.index), "first_call_seed": self.call_seed("trial", 0),
                },
                timeout_s=self._terms.check_timeout_s, stage=f"trial {trial.index}",
            )
        except (ChildFailed, ChildDied, ChildTimeout, ProtocolError) as error:
            if trial.is_own_generator:
                raise ReferenceFailed(f"reference: {error}") from error
            # Inputs of ours that break the reference (a device assertion, say) are no trial; the process may be lost.
            self.skipped[trial.index] = f"the reference fails on these inputs: {str(error)[-300:]}"
            self.child.end()
            self.state_region.close()
            self._start()
            return None
        if answer.body["skipped"] is not None:
            self.skipped[trial.index] = answer.text("skipped", 500)
            return None
        if answer.body["traits"]:
            self.traits = answer.items("traits")
        return answer.body

    def close(self) -> None:
        """End the referee."""
        self.child.end()
        self.state_region.close()


class Problem:
    """One problem's referee, started when first needed; one that breaks twice is the task's fault.

    Args:
        problem_id: of the problem.
        start: starts a referee for it.
    """

    def __init__(self, problem_id: str, start: Callable[[], Reference]) -> None:
        self.problem_id = problem_id
        self._start = start
        self._reference: Reference | None = None
        self._failures: list[str] = []
        self.secret = secrets.token_hex(16)

    @property
    def is_running(self) -> bool:
        """Whether its referee is there already."""
        return self._reference is not None

    def reference(self) -> Reference | str:
        """The running referee, with its trials made; or why the task cannot be judged."""
        while self._reference is None:
            if len(self._failures) >= 2:
                return self._failures[-1]
            try:
                self._reference = self._start()
                self.secret = self._reference.secret
                self._reference.trials()
            except ReferenceFailed as error:
                self.failed(str(error))
        return self._reference

    def failed(self, text: str) -> None:
        """Note a failure and give the referee up."""
        self._failures.append(text)
        self.close()

    def close(self) -> None:
        """End the referee."""
        if self._reference is not None:
            self._reference.close()
            self._reference = None
