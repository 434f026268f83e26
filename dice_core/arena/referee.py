"""The reference side: one process for one problem.

It makes inputs from seeds, expected outputs, errors and eager timings. It never shares a process with a candidate,
and never decides: it measures, the judge judges.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dice_core.arena import inputs as values
from dice_core.arena import metrics
from dice_core.arena.frames import Channel, Frame
from dice_core.arena.inputs import Drawn
from dice_core.arena.serving import Failure, attach, describe, serve
from dice_core.arena.timedcall import TimedSide, start_device
from dice_core.arena.trees import aligned, total_bytes
from dice_core.arena.worker import construct, has_overlap, mutated_inputs, output_faults, run_source

#: A double-precision reference is made when the ordinary one takes no longer than this and memory allows.
_DOUBLE_LIMIT_S = 1.0
_DOUBLE_LIMIT_BYTES = {"cpu": 1 << 30, "cuda": 16 << 30}
#: Trials larger than this are not kept but made again from their seeds for the next candidate.
_KEEP_LIMIT_BYTES = {"cpu": 256 << 20, "cuda": 4 << 30}
#: Double precision that is this far off means that the module behaves differently in double, not that it is better.
_DOUBLE_MAX_DIFFERENCE = 0.05
#: Time that drawing one block's inputs through the problem's own generator may take.
_DRAW_LIMIT_S = 0.3


def main(channel: Channel, folder: Path) -> None:
    """Serve the judge until it hangs up."""
    referee = _Referee(folder)
    serve(
        channel,
        {
            "device": referee.device,
            "load": referee.load,
            "attach": referee.attach,
            "state": referee.state,
            "trial": referee.trial,
            "publish": referee.publish,
            "compare": referee.compare,
            "draw": referee.draw,
            "prepare": referee.prepare,
            "go": referee.go,
            "collect": referee.collect,
        },
    )


@dataclass
class _Trial:
    inputs: Drawn
    expected: Any  # outputs in the problem's own precision
    exact: Any  # outputs in double precision, or None
    facts: dict[str, Any]


class _Referee:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._device = torch.device("cpu")
        self._model: Any = None
        self._double: Any = None
        self._double_broken = ""
        self._state: dict[str, torch.Tensor] | None = None
        self._init: Any = None
        self._get_inputs: Any = None
        self._base: Drawn = Drawn([])
        self._draw_s = 0.0
        self._trials: dict[int, _Trial] = {}
        self._regions: dict[str, torch.Tensor] = {}
        self._side: TimedSide | None = None

    def device(self, frame: Frame) -> Mapping[str, Any]:
        """Bring the device up and name its architecture, `sm_90` for example; empty on the CPU."""
        try:
            device = start_device(frame.text("device"))
        except Exception as error:
            raise Failure("device", f"{type(error).__name__}: {error}") from error
        if device.type != "cuda":
            return {"arch": ""}
        major, minor = torch.cuda.get_device_capability(device)
        return {"arch": f"sm_{major}{minor}"}

    def load(self, frame: Frame) -> Mapping[str, Any]:
        """Import the problem, construct its model, draw a first set of inputs."""
        torch.set_num_threads(frame.whole("threads"))
        try:
            self._device = start_device(frame.text("device"))
        except Exception as error:
            raise Failure("device", f"{type(error).__name__}: {error}") from error
        try:
            module = run_source(frame.text("source", 1 << 25), "problem", self._folder)
            missing = [name for name in ("Model", "get_inputs", "get_init_inputs") if not hasattr(module, name)]
            if missing:
                raise Failure("load", f"the problem defines no {', '.join(missing)}")
            seed = frame.whole("seed")
            torch.manual_seed(seed)
            self._init = module.get_init_inputs()
            self._model = construct(module.Model, self._init, seed, self._device)
            if hasattr(self._model, "state_dict"):
                self._state = {name: value.detach().cpu().clone() for name, value in self._model.state_dict().items()}
            self._get_inputs = module.get_inputs
            begin = time.perf_counter()
            self._base = values.draw(self._get_inputs, frame.whole("base_seed"))
            self._draw_s = time.perf_counter() - begin
            _, offset = values.encode(self._init, None, 0)
            _, offset = values.encode(self._state, None, aligned(offset))
            node, _ = values.encode(self._base.values, None, 0)
        except BaseException as error:
            told = describe(error)
            raise Failure("load", told["text"], error=told.get("error", "")) from error
        return {
            "state_bytes": offset, "input_bytes": total_bytes(node), "draw_s": self._draw_s,
            "plain_inputs": sorted(set(self._base.plain.values())),
        }

    def attach(self, frame: Frame) -> Mapping[str, Any]:
        """Map regions; eager timing starts anew with them."""
        self._regions.update({name: values.as_bytes(region) for name, region in attach(frame).items()})
        if "inputs" in self._regions and "outputs" in self._regions:
            self._side = TimedSide(self._model, self._device, self._regions["inputs"], self._regions["outputs"])
        return {}

    def state(self, frame: Frame) -> Mapping[str, Any]:
        """Write constructor arguments and state into the state region."""
        init, offset = values.encode(self._init, self._regions["state"], 0)
        state, _ = values.encode(self._state, self._regions["state"], aligned(offset))
        return {"init": init, "state": state if self._state else None}

    def trial(self, frame: Frame) -> Mapping[str, Any]:
        """Inputs and expected outputs of one trial; facts about them, or why the trial does not count."""
        index = frame.whole("index")
        if index not in self._trials:
            made = self._make(frame.text("kind"), frame.whole("seed"), frame.whole("call_seed"), index)
            if isinstance(made, str):
                return {"skipped": made}
            size = made.facts["input_bytes"] + 3 * made.facts["output_bytes"]
            if size > _KEEP_LIMIT_BYTES[self._device.type]:
                self._trials.clear()
            self._trials[index] = made
        return {"skipped": None, **self._trials[index].facts}

    def publish(self, frame: Frame) -> Mapping[str, Any]:
        """Write a trial's inputs into the input region."""
        node, _ = values.encode(self._trials[frame.whole("index")].inputs.values, self._regions["inputs"], 0)
        return {"node": node}

    def compare(self, frame: Frame) -> Mapping[str, Any]:
        """Errors of outputs in the evidence region, against a trial or against this side's own timed outputs."""
        got = values.leaves(values.decode(frame.mapping("node"), self._regions["evidence"], self._device))
        if frame.body.get("own") is not None:
            own = values.decode(frame.mapping("own"), self._regions["outputs"], self._device)
            expected, exact = values.leaves(own), None
        else:
            trial = self._trials[frame.whole("index")]
            expected = values.leaves(trial.expected)
            exact = None if trial.exact is None else values.leaves(trial.exact)
        return {"leaves": [
            metrics.measure(ours, theirs, None if exact is None else exact[number])
            for number, (ours, theirs) in enumerate(zip(got, expected, strict=True))
        ]}

    def draw(self, frame: Frame) -> Mapping[str, Any]:
        """Fresh input sets, one for each seed, written from `offsets` on."""
        seeds, offsets = frame.items("seeds"), frame.items("offsets")
        own = self._draw_s * len(seeds) <= _DRAW_LIMIT_S or not self._base.plain
        nodes = []
        for seed, offset in zip(seeds, offsets, strict=True):
            drawn = values.draw(self._get_inputs, seed) if own else values.redraw(self._base, seed, self._device)
            nodes.append(values.encode(drawn.values, self._regions["inputs"], offset)[0])
        return {"nodes": nodes, "generator": "get_inputs" if own else "redraw"}

    def prepare(self, frame: Frame) -> Mapping[str, Any]:
        """As in the worker."""
        self._live.prepare(frame.items("nodes"), frame.body["seed"], frame.body["poison"], frame.items("reserve"))
        return {}

    def go(self, frame: Frame) -> Mapping[str, Any]:
        """As in the worker, without its inspections."""
        answer: dict[str, Any] = {**self._live.go(frame.number("spin_us")).body()}
        if frame.body["offsets"] is not None:
            answer |= {"outputs": self._live.collect(frame.items("offsets")), "copied": True}
        return answer

    def collect(self, frame: Frame) -> Mapping[str, Any]:
        """As in the worker."""
        return {"outputs": self._live.collect(frame.items("offsets"), frame.items("which")), "copied": True}

    @property
    def _live(self) -> TimedSide:
        if self._side is None:
            raise Failure("exception", "no regions are attached")
        return self._side

    def _make(self, kind: str, seed: int, call_seed: int, index: int) -> _Trial | str:
        drawn = self._inputs_of(kind, seed)
        if drawn is None:
            return "no input comes straight from torch.rand or torch.randn"
        optional = kind in ("normal", "mixture")
        try:
            arguments = self._place(drawn)
            begin = time.perf_counter()
            expected = self._run(self._model, arguments, call_seed)
            took_s = time.perf_counter() - begin
        except Exception as error:
            if optional:
                return f"the reference fails on these inputs: {type(error).__name__}: {str(error)[:300]}"
            told = describe(error)
            raise Failure("oom" if told["category"] == "oom" else "exception", told["text"]) from error
        found = values.leaves(expected)
        if not found:
            raise Failure("exception", f"the reference returns no tensor but {type(expected).__name__}")
        if optional and not all(bool(torch.isfinite(leaf).all()) for leaf in found if leaf.is_floating_point()):
            return "the reference gives values that are not finite on these inputs"
        node, _ = values.encode(expected, None, 0, strict=False)
        sent, sent_bytes = values.packed(drawn.values)
        facts: dict[str, Any] = {
            "output": node,
            "output_bytes": total_bytes(node),
            "input_bytes": total_bytes(sent),
            "mutates": mutated_inputs(arguments, sent, sent_bytes),
            "faults": sorted({fault["rule"] for fault in output_faults(expected, arguments, self._device)}),
            "overlaps": any(has_overlap(leaf) for leaf in found),
            "took_s": took_s,
        }
        # The module may hand out a buffer that its next call overwrites.
        expected = values.map_leaves(expected, lambda _, leaf: leaf.detach().clone())
        facts["stochastic"] = index == 0 and self._varies(drawn, expected, call_seed)
        exact = None
        if not facts["stochastic"]:
            exact = self._exact(drawn, expected, took_s, facts["input_bytes"] + facts["output_bytes"])
        facts["double"] = exact is not None
        facts["double_note"] = self._double_broken
        return _Trial(drawn, expected, exact, facts)

    def _inputs_of(self, kind: str, seed: int) -> Drawn | None:
        drawn = values.draw(self._get_inputs, seed)
        if kind == "normal":
            return values.standard_normal(drawn, seed)
        if kind == "mixture":
            return values.mixture(drawn, seed)
        return drawn

    def _place(self, drawn: Drawn) -> list[Any]:
        return list(values.map_leaves(
            drawn.values, lambda _, leaf: leaf.clone() if self._device.type == "cpu" else leaf.to(self._device)
        ))

    def _run(self, model: Any, arguments: list[Any], seed: int) -> Any:
        torch.manual_seed(seed)
        with torch.no_grad():
            output = model(*arguments)
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return output

    def _varies(self, drawn: Drawn, expected: Any, call_seed: int) -> bool:
        """Whether the same inputs under another seed of the generators give another answer."""
        again = self._run(self._model, self._place(drawn), call_seed + 1)
        return any(
            metrics.relative_difference(one, other) > 1e-3
            for one, other in zip(values.leaves(again), values.leaves(expected), strict=True)
        )

    def _exact(self, drawn: Drawn, expected: Any, took_s: float, size: int) -> Any:
        if self._double_broken or took_s > _DOUBLE_LIMIT_S or size > _DOUBLE_LIMIT_BYTES[self._device.type]:
            return None
        try:
            if self._double is None:
                self._double = copy.deepcopy(self._model).double()
            arguments = values.map_leaves(
                self._place(drawn), lambda _, leaf: leaf.double() if leaf.is_floating_point() else leaf
            )
            exact = self._run(self._double, list(arguments), 0)
            pairs = list(zip(values.leaves(exact), values.leaves(expected), strict=True))
            if any(one.shape != other.shape for one, other in pairs):
                raise ValueError("shapes differ in double precision")
            if any(metrics.relative_difference(one, other) > _DOUBLE_MAX_DIFFERENCE for one, other in pairs):
                raise ValueError("double precision gives another answer")
        except Exception as error:  # the module does not run in double: the ordinary reference has to do
            self._double = None
            self._double_broken = f"{type(error).__name__}: {str(error)[:200]}"
            return None
        return values.map_leaves(exact, lambda _, leaf: leaf.detach().clone())

