"""One side of a measured call, the same code for candidate and reference: copy inputs in, flush, call, copy outputs.

Clocks and torch functions are bound when this module is imported, before any candidate code exists in the process.
That is depth in defence only: the judge's own bracket around the request decides.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dice_core.arena import inputs as values
from dice_core.arena.trees import PIECE, Node, tensors

_clock_ns = time.perf_counter_ns
_no_grad = torch.no_grad
_manual_seed = torch.manual_seed
_Event: Any = torch.cuda.Event
_synchronize: Any = torch.cuda.synchronize
_sleep: Any = torch.cuda._sleep
_gc_disable, _gc_enable = gc.disable, gc.enable

_CALIBRATION_CYCLES = 1_000_000
_MINIMUM_FLUSH_BYTES = 256 << 20


@dataclass(frozen=True)
class Reading:
    """What both clocks of one sample said.

    Attributes:
        host_us: from before the first call to after the device was idle, the spin included.
        device_us: between events around the calls; None on the CPU.
        launch_us: host time until the last call was handed over.
        exposed: the device began before the last call was handed over, so its span may hold launching.
    """

    host_us: float
    device_us: float | None
    launch_us: float
    exposed: bool

    def body(self) -> Mapping[str, Any]:
        """As an answer to the judge."""
        return vars(self)


class TimedSide:
    """Runs prepared calls of one module.

    Args:
        call: the module.
        device: where inputs go.
        inputs: uint8 view of the input region.
        outputs: uint8 view of this side's output region.
    """

    def __init__(
        self, call: Callable[..., Any], device: torch.device, inputs: torch.Tensor, outputs: torch.Tensor
    ) -> None:
        self.call = call
        self._device = device
        self._inputs = inputs
        self._outputs_region = outputs
        self._kept: list[list[Any]] = []  # tensors whose addresses stay the same from call to call
        self._turn = 0
        self._flush = _flush_buffer(device)
        self._cycles_per_us = _spin_rate(device)
        self.prepared: list[list[Any]] = []
        self.outputs: list[Any] = []  # of the last sample
        self._samples: list[list[Any]] = []  # outputs of each sample of the last run

    def prepare(self, nodes: list[Node], seed: int | None, poison: int | None, reserve: list[int]) -> None:
        """Bring the inputs of the next calls into place and put the device into its starting state.

        Every second time the values go into tensors that stay where they are, otherwise into fresh ones: a replay
        keyed by address or by object sees both new values at old addresses and new addresses.

        Args:
            nodes: one input tree for each call.
            seed: for torch's generators, for references with randomness of their own.
            poison: byte to fill free memory with, or None.
            reserve: sizes of blocks to poison, in bytes.
        """
        self.outputs = []
        self.prepared = []
        if self._turn % 2 == 0:
            for place, node in enumerate(nodes):
                if place == len(self._kept):
                    self._kept.append(values.decode(node, self._inputs, self._device))
                else:
                    self._kept[place] = self._refill(self._kept[place], node)
            self.prepared = [list(kept) for kept in self._kept[: len(nodes)]]
        else:
            self.prepared = [values.decode(node, self._inputs, self._device) for node in nodes]
        self._turn += 1
        if poison is not None:
            blocks = [torch.full((size,), poison, dtype=torch.uint8, device=self._device) for size in reserve]
            del blocks
        if seed is not None:
            _manual_seed(seed)
        if self._flush is not None:
            self._flush.add_(1)
            _synchronize()

    def _refill(self, kept: list[Any], node: Node) -> list[Any]:
        fresh = values.leaves(kept)
        nodes = [leaf for item in node["items"] for leaf in tensors(item)]
        same = len(fresh) == len(nodes) and all(
            type(tensor) is torch.Tensor and list(tensor.shape) == leaf["shape"] and tensor.is_contiguous()
            and str(tensor.dtype) == f"torch.{leaf['dtype']}"
            for tensor, leaf in zip(fresh, nodes, strict=False)
        )
        if not same:
            return list(values.decode(node, self._inputs, self._device))
        for tensor, leaf in zip(fresh, nodes, strict=True):
            tensor.copy_(values.source_of(leaf, self._inputs, self._device))
        return kept

    def go(self, spin_us: float) -> Reading:
        """Run the prepared calls between two clock readings.

        On CUDA a spin of `spin_us` is enqueued first, so that launching happens behind it and the events bracket device
        work alone (method: the blocking kernel of nvbench). With 0 nothing is hidden.
        """
        call, outputs = self.call, []
        _gc_disable()
        try:
            with _no_grad():
                if self._device.type == "cuda":
                    start, stop = _Event(enable_timing=True), _Event(enable_timing=True)
                    _synchronize()
                    begin = _clock_ns()
                    if spin_us:
                        _sleep(int(spin_us * self._cycles_per_us))
                    start.record()
                    for arguments in self.prepared:
                        outputs.append(call(*arguments))
                    stop.record()
                    launched = _clock_ns()
                    exposed = bool(start.query())
                    _synchronize()
                    end = _clock_ns()
                    device_us: float | None = float(start.elapsed_time(stop)) * 1000.0
                else:
                    begin = _clock_ns()
                    for arguments in self.prepared:
                        outputs.append(call(*arguments))
                    end = launched = _clock_ns()
                    device_us, exposed = None, False
        finally:
            _gc_enable()
        self.outputs = outputs
        return Reading((end - begin) / 1000.0, device_us, (launched - begin) / 1000.0, exposed)

    def run(self, samples: list[Node], spin_us: float, plain: Callable[[Any], Any] = lambda value: value
            ) -> list[Reading]:
        """Take timed samples one after the other and keep their outputs for `collect`.

        Outputs are copied once their sample's clock has stopped, so that the next one finds the memory as this one did.

        Args:
            samples: of each, `nodes` (input trees, one for each call) and `seed`.
            spin_us: as for `go`.
            plain: applied to each output before anything else looks at it.
        """
        readings: list[Reading] = []
        self._samples = []
        for sample in samples:
            self.prepare(sample["nodes"], sample["seed"], None, [])
            readings.append(self.go(spin_us))
            outputs = [plain(output) for output in self.outputs]
            if len(samples) > 1:
                outputs = [values.map_leaves(one, lambda _, leaf: leaf.detach().clone()) for one in outputs]
            self._samples.append(outputs)
            self.outputs = []
        return readings

    def chosen(self, places: list[list[int]]) -> list[Any]:
        """Outputs of the last run by (sample, call)."""
        return [self._samples[sample][call] for sample, call in places]

    def copy_out(self, outputs: list[Any], offsets: list[int], pieces: list[list[int]]) -> list[Node]:
        """Copy outputs into the output region; returns their trees.

        Args:
            outputs: of calls.
            offsets: where each goes, in bytes.
            pieces: for each tensor of an output, starts of the pieces that are wanted of it; empty for all of it.
        """
        return [
            values.encode(values.cut(output, pieces, PIECE), self._outputs_region, offset, strict=False)[0]
            for output, offset in zip(outputs, offsets, strict=True)
        ]

    def trace_call(self) -> Any:
        """One call of the first prepared inputs, without clocks."""
        with _no_grad():
            return self.call(*self.prepared[0])


def start_device(name: str) -> torch.device:
    """Bring the device up in this process, with true fp32 everywhere.

    Raises:
        RuntimeError: there is no such device, or it does not start.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    device = torch.device(name)
    if device.type == "cuda":
        torch.zeros(1, device=device).item()
    return device


def _spin_rate(device: torch.device) -> float:
    """Spin cycles in a microsecond."""
    if device.type != "cuda":
        return 1.0
    start, stop = _Event(enable_timing=True), _Event(enable_timing=True)
    _sleep(_CALIBRATION_CYCLES)  # brings the clock up
    start.record()
    _sleep(_CALIBRATION_CYCLES)
    stop.record()
    _synchronize()
    return float(_CALIBRATION_CYCLES / max(start.elapsed_time(stop) * 1000.0, 1.0))


def _flush_buffer(device: torch.device) -> torch.Tensor | None:
    if device.type != "cuda":
        return None
    cache = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
    return torch.zeros(max(_MINIMUM_FLUSH_BYTES, 2 * cache), dtype=torch.uint8, device=device)

