"""The untrusted side: one fresh, confined process for one candidate.

It holds the candidate's module and nothing worth stealing: no seeds, no expected outputs, no verdict. Everything that
it says is checked outside; a candidate that takes this process over gains only the right to lie about itself.
The only place in DICE where foreign source is executed.
"""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.utils

from dice_core.arena import honesty_trace
from dice_core.arena import inputs as values
from dice_core.arena.build import BuildResult
from dice_core.arena.capture import BuildRequest, CapturePlaceholder, fake_cpp_extension
from dice_core.arena.frames import Channel, Frame
from dice_core.arena.loader import load_artefact
from dice_core.arena.serving import Failure, attach, describe, serve
from dice_core.arena.timedcall import TimedSide, start_device
from dice_core.arena.trees import tensors

_EXTENSION = "torch.utils.cpp_extension"
#: How the reference's state came into the candidate: the two ways in which other values can be loaded later.
LOADED, LOADED_BY_ORDER = "loaded", "loaded by order"
_SCALARS = (type(None), bool, int, float, str)


class UnknownExtension(BaseException):
    """Not an Exception, so that a fallback in the candidate does not swallow it."""


def main(channel: Channel, folder: Path) -> None:
    """Serve the judge until it hangs up."""
    worker = _Worker(folder)
    serve(
        channel,
        {
            "capture": worker.capture,
            "device": worker.device,
            "attach": worker.attach,
            "load": worker.load,
            "twin": worker.twin,
            "single": worker.single,
            "prepare": worker.prepare,
            "go": worker.go,
            "run": worker.run,
            "collect": worker.collect,
            "held": worker.held,
            "trace": worker.trace,
            "kernels": worker.kernels,
        },
    )


def run_source(source: str, name: str, folder: Path) -> types.ModuleType:
    """Execute a module's source as module `name`; it is also a file in `folder`, for tracebacks and inspect."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8", errors="surrogatepass")
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - what this process is for
    return module


def construct(model_class: Any, init: Any, seed: int, device: torch.device) -> Any:
    """Build a model under `seed`, as KernelBench does: on the host, without gradients, then moved.

    `init` is the problem's `get_init_inputs()`: a list of positional arguments, or `[[args], {kwargs}]`, the form
    that KernelBook-derived records use.
    """
    args, kwargs = init, {}
    if len(init) == 2 and isinstance(init[0], list | tuple) and isinstance(init[1], dict):
        args, kwargs = init
    torch.manual_seed(seed)
    with torch.no_grad():
        model = model_class(*args, **kwargs)
        return model.to(device) if hasattr(model, "to") else model


class _Worker:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._regions: dict[str, torch.Tensor] = {}
        self._artefacts: dict[str, dict[str, Any]] = {}
        self._missing: list[BuildRequest] = []
        self._device = torch.device("cpu")
        self._model: Any = None
        self._construct: Callable[[], Any] = lambda: None
        self._side: TimedSide | None = None
        self._nodes: list[Any] = []
        self._held: Any = None
        self._order: list[str] | None = None

    def capture(self, frame: Frame) -> Mapping[str, Any]:
        """Import the candidate for the build requests it makes; whether the import succeeds does not matter."""
        requests: dict[str, BuildRequest] = {}

        def note(request: BuildRequest) -> CapturePlaceholder:
            requests[request.key] = request
            return CapturePlaceholder(request.name)

        _install(fake_cpp_extension(note))
        error = ""
        try:
            run_source(frame.text("source", 1 << 25), "candidate", self._folder)
        except BaseException as caught:
            error = describe(caught)["text"]
        return {"requests": [request.to_json() for request in requests.values()], "error": error}

    def device(self, frame: Frame) -> Mapping[str, Any]:
        """Bring the device up, ahead of the candidate."""
        start_device(frame.text("device"))
        return {}

    def attach(self, frame: Frame) -> Mapping[str, Any]:
        """Map regions; a new side starts with the new ones."""
        self._regions.update({name: values.as_bytes(region) for name, region in attach(frame).items()})
        self._side = TimedSide(self._model, self._device, self._regions["inputs"], self._regions["outputs"]) if (
            self._model is not None and "outputs" in self._regions) else None
        return {}

    def load(self, frame: Frame) -> Mapping[str, Any]:
        """Import the candidate, construct `ModelNew`, load the reference's state into it by name."""
        torch.set_num_threads(frame.whole("threads"))
        try:
            self._device = start_device(frame.text("device"))
        except Exception as error:
            raise Failure("device", f"{type(error).__name__}: {error}") from error
        self._artefacts = frame.mapping("artefacts")
        _install(fake_cpp_extension(self._built))
        init = values.decode(frame.mapping("init"), self._regions["state"], torch.device("cpu"))
        try:
            module = run_source(frame.text("source", 1 << 25), "candidate", self._folder)
            model_class = getattr(module, "ModelNew", None)
            if model_class is None:
                raise Failure("load", "the candidate defines no ModelNew")
            seed = frame.whole("seed")
            self._construct = lambda: construct(model_class, init, seed, self._device)
            self._model = self._construct()
            if not callable(self._model):
                raise Failure("load", "ModelNew() is not callable")
        except BaseException as error:
            self._raise_missing()
            told = describe(error)
            category = told["category"] if told["category"] == "oom" else "load"
            raise Failure(category, told["text"], error=told.get("error", "")) from error
        self._raise_missing()
        state = frame.body.get("state")
        with torch.no_grad():
            decoded = None if state is None else values.decode(state, self._regions["state"], torch.device("cpu"))
            how = _load_state(self._model, decoded, [str(name) for name in frame.items("order")])
        self._order = frame.items("order") if how == LOADED_BY_ORDER else None
        return {"state": how}

    def twin(self, frame: Frame) -> Mapping[str, Any]:
        """Put a second instance with another state in the candidate's place, loaded the way the first one was.

        A second one, since the first may rightly have kept what it made of its weights at its first call.
        """
        state = values.decode(frame.mapping("state"), self._regions["state"], torch.device("cpu"))
        model = self._construct()
        with torch.no_grad():
            _copy_state(model, state, self._order)
        self._live.call = model
        return {}

    def single(self, frame: Frame) -> Mapping[str, Any]:
        """Back to the first instance."""
        self._live.call = self._model
        return {}

    def prepare(self, frame: Frame) -> Mapping[str, Any]:
        """Bring the next calls' inputs into place."""
        self._nodes = frame.items("nodes")
        self._live.prepare(self._nodes, frame.body["seed"], frame.body["poison"], frame.items("reserve"))
        return {}

    def go(self, frame: Frame) -> Mapping[str, Any]:
        """Run the prepared calls; with `offsets` also copy the outputs out, with `inspect` look at their form."""
        side = self._live
        try:
            reading = side.go(frame.number("spin_us"))
        finally:
            self._raise_missing()  # a call that asks for an extension which is not built has failed for that reason
        answer: dict[str, Any] = {**reading.body()}
        if frame.body["offsets"] is not None:
            side.outputs = [plain(output) for output in side.outputs]
            answer |= self._copy_out(side.outputs, frame.items("offsets"), [])
        if frame.flag("inspect"):
            answer["faults"] = output_faults(side.outputs[0], side.prepared[0], self._device)
            answer["mutated"] = mutated_inputs(side.prepared[0], self._nodes[0], self._regions["inputs"])
        if frame.flag("hold"):
            self._held = side.outputs[0]
        return answer

    def run(self, frame: Frame) -> Mapping[str, Any]:
        """Take timed samples."""
        try:
            readings = self._live.run(frame.items("samples"), frame.number("spin_us"), plain)
        finally:
            self._raise_missing()
        return {"readings": [reading.body() for reading in readings]}

    def collect(self, frame: Frame) -> Mapping[str, Any]:
        """Copy those outputs of the last run out that the judge asks for; it asks only now."""
        return self._copy_out(
            self._live.chosen(frame.items("places")), frame.items("offsets"), frame.items("pieces"))

    def held(self, frame: Frame) -> Mapping[str, Any]:
        """Copy an output out that an earlier call gave and that later calls must not have changed."""
        node, _ = values.encode(self._held, self._regions["outputs"], frame.whole("offset"), strict=False)
        self._held = None
        return {"outputs": [node]}

    def trace(self, frame: Frame) -> Mapping[str, Any]:
        """One untimed call with notes of what ran in it."""
        self.prepare(frame)
        return honesty_trace.trace(self._live.trace_call, all_threads=self._device.type == "cpu")

    def kernels(self, frame: Frame) -> Mapping[str, Any]:
        """Device kernels that the last prepared call launches."""
        return {"kernels": honesty_trace.device_kernels(self._live.trace_call)}

    @property
    def _live(self) -> TimedSide:
        if self._side is None:
            raise Failure("exception", "no model is loaded, or no regions are attached")
        return self._side

    def _copy_out(self, outputs: list[Any], offsets: list[int], pieces: list[list[int]]) -> dict[str, Any]:
        described = [values.encode(output, None, 0, strict=False)[0] for output in outputs]
        try:
            return {"outputs": self._live.copy_out(outputs, offsets, pieces), "copied": True}
        except values.UnsupportedValue:
            return {"outputs": described, "copied": False}

    def _built(self, request: BuildRequest) -> Any:
        result = self._artefacts.get(request.key)
        if result is None:
            self._missing.append(request)
            raise UnknownExtension(f"extension {request.name!r} is not built yet")
        return honesty_trace.note_extension(load_artefact(BuildResult.from_json(result)))

    def _raise_missing(self) -> None:
        if self._missing:
            requests = [request.to_json() for request in self._missing]
            raise Failure("unknown_extension", f"{len(requests)} extensions are not built yet", requests=requests)


def plain(value: Any) -> Any:
    """`value` if it is made of exact tensors, containers and scalars; what could run code when it is read is replaced.

    The replacement is an empty object whose type has the same name. Named tuples become tuples. Reading goes past
    methods that a subclass may have of its own.
    """
    kind = type(value)
    if kind in _SCALARS or kind is torch.Tensor or kind is torch.nn.Parameter:
        return value
    if kind in (list, tuple) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        items = [plain(item) for item in (list if kind is list else tuple).__iter__(value)]
        return items if kind is list else tuple(items)
    if kind in (dict, OrderedDict):
        return {key: plain(item) for key, item in dict.items(value)}
    return type(kind.__qualname__, (), {"__module__": kind.__module__})()


def output_faults(output: Any, arguments: list[Any], device: torch.device) -> list[dict[str, str]]:
    """Where an output breaks the contract: exact torch.Tensor, bare, on the device, dense, with memory of its own."""
    faults: list[dict[str, str]] = []
    inputs = {leaf.untyped_storage().data_ptr() for leaf in values.leaves(arguments) if leaf.numel()}
    for number, leaf in enumerate(values.leaves(output)):

        def fault(rule: str, detail: str, number: int = number) -> None:
            faults.append({"rule": rule, "detail": f"output {number}: {detail}"})

        if type(leaf) is not torch.Tensor:
            fault("type", f"type is {type(leaf).__name__}, not torch.Tensor")
            continue
        if leaf.__dict__:
            fault("attributes", f"carries attributes {sorted(leaf.__dict__)[:5]}")
        if leaf.device.type != device.type:
            fault("device", f"is on {leaf.device}, not on {device}")
        if leaf.layout is not torch.strided:
            fault("layout", f"layout is {leaf.layout}")
            continue
        if has_overlap(leaf):
            fault("overlap", f"strides {tuple(leaf.stride())} over shape {tuple(leaf.shape)} share memory")
        if leaf.numel() and leaf.untyped_storage().data_ptr() in inputs:
            fault("alias_input", "shares its memory with an input")
    return faults


def has_overlap(leaf: torch.Tensor) -> bool:
    """Whether two elements of a strided tensor share memory, or its storage is too small for it."""
    if leaf.numel() == 0:
        return False
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(leaf.stride(), leaf.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    end = (leaf.storage_offset() + reach + 1) * leaf.element_size()
    return end > leaf.untyped_storage().nbytes()


def mutated_inputs(arguments: list[Any], node: Any, region: torch.Tensor) -> list[int]:
    """Indices of input tensors whose bytes differ from what was sent."""
    sent = [leaf for item in node["items"] for leaf in tensors(item)]
    return [
        index for index, (leaf, told) in enumerate(zip(values.leaves(arguments), sent, strict=True))
        if not values.same_bytes(leaf, values.source_of(told, region, leaf.device))
    ]


def _load_state(model: Any, state: dict[str, torch.Tensor] | None, order: list[str]) -> str:
    """Copy `state` into `model` where names, shapes and dtypes are equal; else the equal seeds must do.

    Other names do no harm when the values are there already, in the same order: then it is known which tensor is which.
    """
    if not state:
        return "none"
    try:
        own = dict(model.state_dict())
    except Exception:
        return "seeded: the candidate has no state_dict"
    if set(own) != set(state):
        pairs = zip(own.values(), order, strict=False)
        if len(own) == len(order) and all(values.same_bytes(one.cpu(), state[name]) for one, name in pairs):
            return LOADED_BY_ORDER
        return f"seeded: names differ ({', '.join(sorted(set(own) ^ set(state))[:6])})"
    for name, value in state.items():
        if own[name].shape != value.shape or own[name].dtype != value.dtype:
            return f"seeded: {name} has another shape or dtype"
    _copy_state(model, state, None)
    return LOADED


def _copy_state(model: Any, state: dict[str, torch.Tensor], order: list[str] | None) -> None:
    """By name, or with `order` the tensors of `model` one after the other."""
    own = dict(model.state_dict())
    for mine, theirs in zip(own if order else state, order or state, strict=True):
        own[mine].copy_(state[theirs])


def _install(extension: types.ModuleType) -> None:
    sys.modules[_EXTENSION] = extension
    torch.utils.cpp_extension = extension  # type: ignore[attr-defined]
