"""The reference side: one process for one problem.

It makes inputs from seeds, expected outputs, errors and eager timings. It never shares a process with a candidate,
and never decides: it measures, the judge judges.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dice_core.arena import inputs as values
from dice_core.arena import metrics, weights
from dice_core.arena.drawing import Drawn, described, draw, recipe, redraw
from dice_core.arena.frames import Channel, Frame
from dice_core.arena.serving import Failure, attach, describe, serve
from dice_core.arena.timedcall import TimedSide, start_device
from dice_core.arena.traits import problem_traits
from dice_core.arena.trees import aligned, tensors, total_bytes
from dice_core.arena.trials import Trial, TrialMaker
from dice_core.arena.worker import construct, run_source

#: Trials larger than this are not kept but made again from their seeds for the next candidate.
_KEEP_LIMIT_BYTES = {"cpu": 256 << 20, "cuda": 4 << 30}
#: Timed outputs of up to so many elements are compared call by call.
_SMALL_OUTPUT = 256
#: Elements of larger ones that are compared at once.
_STACKED = 1 << 22
#: Inputs of trials from this size on are drawn by both sides where that is possible, instead of copied.
_RECIPE_BYTES = 64 << 20
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
            "compare_timed": referee.compare_timed,
            "draw": referee.draw,
            "run": referee.run,
            "collect": referee.collect,
        },
    )


class _Referee:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._device = torch.device("cpu")
        self._model: Any = None
        self._state: dict[str, torch.Tensor] | None = None
        self._other_state: dict[str, torch.Tensor] | None = None
        self._init: Any = None
        self._get_inputs: Any = None
        self._base: Drawn = Drawn([])
        self._all_plain = self._recipes = self._large = False
        self._draw_s = 0.0
        self._maker: TrialMaker
        self._trials: dict[int, Trial] = {}
        self._traits: list[dict[str, Any]] | None = None
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
            other = weights.randomised(self._model, frame.whole("base_seed"))
            if hasattr(self._model, "state_dict"):
                self._state = {name: value.detach().cpu().clone() for name, value in self._model.state_dict().items()}
                changed = {name: value.cpu() for name, value in other.items()}
                self._other_state = {**self._state, **changed} if changed else None
            self._get_inputs = module.get_inputs
            self._maker = TrialMaker(self._model, self._trial_inputs, self._device, other)
            drawn = self._draw(frame.whole("base_seed"))
            _, offset = values.encode(self._init, None, 0)
            for state in (self._state, self._other_state):
                _, offset = values.encode(state, None, aligned(offset))
            node, _ = values.encode(drawn.values, None, 0)
            self._base = drawn.light()
            # Where every input is plain, timed inputs need no get_inputs(), and on a device that draws no bytes either.
            self._all_plain = len(self._base.plain) == len(tensors(node))
            self._recipes = self._device.type == "cuda" and self._all_plain
            self._large = total_bytes(node) >= _RECIPE_BYTES
        except BaseException as error:
            told = describe(error)
            raise Failure("load", told["text"], error=told.get("error", "")) from error
        return {
            "state_bytes": offset, "input_bytes": total_bytes(node), "draw_s": self._draw_s,
            "slot_bytes": 0 if self._recipes else total_bytes(node),
            "all_plain": self._all_plain, "device": _device_facts(self._device),
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
        state, offset = values.encode(self._state, self._regions["state"], aligned(offset))
        other, _ = values.encode(self._other_state, self._regions["state"], aligned(offset))
        return {"init": init, "state": state if self._state else None, "other": other if self._other_state else None,
                "order": list(self._state or ())}

    def _draw(self, seed: int) -> Drawn:
        begin = time.perf_counter()
        drawn = draw(self._get_inputs, seed, self._device)
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        self._draw_s = time.perf_counter() - begin
        return drawn

    def _trial_inputs(self, seed: int) -> Drawn:
        if self._recipes and self._large:
            return redraw(self._base, seed, self._device)  # the worker can draw these itself
        return draw(self._get_inputs, seed, self._device)

    def trial(self, frame: Frame) -> Mapping[str, Any]:
        """Inputs and expected outputs of one trial; facts about them, or why the trial does not count."""
        index = frame.whole("index")
        if index not in self._trials:
            call_seed = frame.whole("call_seed")
            made = self._maker.make(
                frame.text("kind"), frame.whole("seed"), frame.whole("alter_seed"), call_seed, index)
            if isinstance(made, str):
                return {"skipped": made}
            if index == 1 and self._traits is None and 0 in self._trials:
                self._traits = problem_traits(
                    self._maker, self._trials[0], made, frame.whole("first_call_seed"), frame.whole("alter_seed"))
            if made.size_bytes > _KEEP_LIMIT_BYTES[self._device.type]:
                self._trials.clear()
            self._trials[index] = made
            if self._device.type == "cuda":
                torch.cuda.empty_cache()  # the candidate's process needs the memory
        return {"skipped": None, "traits": self._traits if index == 1 else None, **self._trials[index].facts}

    def publish(self, frame: Frame) -> Mapping[str, Any]:
        """Write a trial's inputs into the input region, those without a recipe."""
        return {"node": described(self._trials[frame.whole("index")].inputs, self._regions["inputs"], 0)}

    def compare(self, frame: Frame) -> Mapping[str, Any]:
        """Errors of outputs in the evidence region against a trial."""
        got = values.leaves(values.decode(frame.mapping("node"), self._regions["evidence"], self._device))
        trial = self._trials[frame.whole("index")]
        expected = values.leaves(trial.expected)
        exact = [None] * len(expected) if trial.exact is None else values.leaves(trial.exact)
        return {"leaves": [metrics.measure(*one) for one in zip(got, expected, exact, trial.yards, strict=True)]}

    def compare_timed(self, frame: Frame) -> Mapping[str, Any]:
        """Errors of outputs in the evidence region against this side's own of the same calls.

        Large outputs of many calls at once, stacked: what goes wrong in a timed call alone (an answer kept from an
        earlier call, a part left out) is no small error there, and one comparison for each call would take longer than
        the calls. Small outputs, a loss for example, call by call. What comes back is the worst.
        """
        host = torch.device("cpu")
        got, own = (
            [values.leaves(values.decode(node, self._regions[region], host)) for node in frame.items(name)]
            for name, region in (("nodes", "evidence"), ("owns", "outputs"))
        )
        found = []
        for ours, theirs in zip(zip(*got, strict=True), zip(*own, strict=True), strict=True):
            numel = theirs[0].numel()
            size = 1 if numel <= _SMALL_OUTPUT else max(1, _STACKED // numel)
            device = host if numel <= _SMALL_OUTPUT else self._device
            stacks = [
                [torch.stack(side[start : start + size]).to(device) for side in (ours, theirs)]
                for start in range(0, len(ours), size)
            ]
            found.append(max(
                (metrics.measure(metrics.trimmed(one, other), other, None) for one, other in stacks),
                key=metrics.badness))
        return {"leaves": found}

    def draw(self, frame: Frame) -> Mapping[str, Any]:
        """Fresh input sets, one for each seed, written from `offsets` on."""
        seeds, offsets = frame.items("seeds"), frame.items("offsets")
        if any(trial.size_bytes > _KEEP_LIMIT_BYTES[self._device.type] for trial in self._trials.values()):
            self._trials.clear()  # timing needs the memory; a later comparison makes its trial again
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
        if self._recipes:
            return {"nodes": [recipe(self._base, seed, None, 0) for seed in seeds], "generator": "recipe"}
        own = not self._all_plain and (self._draw_s * len(seeds) <= _DRAW_LIMIT_S or not self._base.plain)
        nodes = []
        for seed, offset in zip(seeds, offsets, strict=True):
            drawn = self._draw(seed) if own else redraw(self._base, seed, self._device)
            nodes.append(values.encode(drawn.values, self._regions["inputs"], offset)[0])
        return {"nodes": nodes, "generator": "get_inputs" if own else "redraw"}

    def run(self, frame: Frame) -> Mapping[str, Any]:
        """As in the worker."""
        readings = self._live.run(frame.items("samples"), frame.number("spin_us"))
        return {"readings": [reading.body() for reading in readings]}

    def collect(self, frame: Frame) -> Mapping[str, Any]:
        """As in the worker."""
        chosen = self._live.chosen(frame.items("places"))
        return {"outputs": self._live.copy_out(chosen, frame.items("offsets"), frame.items("pieces")), "copied": True}

    @property
    def _live(self) -> TimedSide:
        if self._side is None:
            raise Failure("exception", "no regions are attached")
        return self._side


def _device_facts(device: torch.device) -> dict[str, Any]:
    """Which device it is, what it can move in a microsecond at its peak and what its cache holds; empty on the CPU."""
    if device.type != "cuda":
        return {}
    found = torch.cuda.get_device_properties(device)
    kilohertz, bits = getattr(found, "memory_clock_rate", 0), getattr(found, "memory_bus_width", 0)
    return {
        "uuid": str(getattr(found, "uuid", "")), "l2_bytes": int(found.L2_cache_size),
        "peak_bytes_per_us": 2 * kilohertz / 1000 * bits / 8,  # twice: both edges of the clock; 0 when not known
    }
