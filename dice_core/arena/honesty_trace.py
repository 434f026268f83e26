"""Notes of what one call does: torch operators, calls into the candidate's own extensions, ways out of torch.

Operators are seen twice: by a dispatch mode, and by torch's own recorder, which a call cannot leave by switching modes
off and which on the CPU also sees other threads. What only the recorder saw is noted as hidden.
Installed by the harness inside the untrusted process, so this is evidence, not proof.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

import torch
from torch._C._profiler import ProfilerActivity as Activity
from torch._C._profiler import _ExperimentalConfig
from torch.utils._python_dispatch import TorchDispatchMode

from dice_core.arena.static_cpp import COMPUTE_OPS

_autograd: Any = torch.autograd
_own_functions: dict[int, Any] = {}
_MAX_NAMES = 200
#: Functions that hand a tensor's values to code which is neither torch's nor an extension's.
_WAYS_OUT = {
    **dict.fromkeys(("numpy", "from_numpy", "__array__", "frombuffer", "tolist"), "foreign.numpy"),
    **dict.fromkeys(("__dlpack__", "_to_dlpack", "to_dlpack", "_from_dlpack", "from_dlpack"), "foreign.dlpack"),
}


def note_extension(module: ModuleType) -> ModuleType:
    """Remember the functions of a built extension, so that calls into them can be counted."""
    for value in vars(module).values():
        if callable(value):
            _own_functions[id(value)] = value
    return module


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: Counter[str] = Counter()


def _note_operator(self: _Operators, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    self.seen[str(func)] += 1
    return func(*args, **(kwargs or {}))


# Set after the class is made: TorchDispatchMode wraps a method that is in the class body so that its first use
# imports the compiler stack, which takes seconds in each fresh process.
_Operators.__torch_dispatch__ = _note_operator  # type: ignore[method-assign, assignment]


def trace(call: Callable[[], Any], *, all_threads: bool = False) -> dict[str, Any]:
    """Run `call` once; returns operator names with counts and the number of calls into own extensions.

    Names are `aten.mm.default` as the dispatch mode says them, `hidden.mm` for compute that only torch's recorder saw,
    and `foreign.numpy` or `foreign.thread` for ways out of torch: values handed to numpy, other Python threads.

    Args:
        call: what to run.
        all_threads: record operators of other threads too. On CUDA that would start CUPTI, which takes seconds.
    """
    calls = 0
    foreign: Counter[str] = Counter()

    def note(_frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event != "c_call":
            return
        if id(argument) in _own_functions:
            calls += 1
        else:
            way = _WAYS_OUT.get(getattr(argument, "__name__", ""))
            if way is not None:
                foreign[way] += 1

    operators = _Operators()
    recorded: Counter[str] = Counter()
    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        with _recorder(recorded, all_threads), operators:
            call()
    finally:
        sys.setprofile(previous)
    if len(sys._current_frames()) > 1 or threading.active_count() > 1:
        foreign["foreign.thread"] += 1
    seen = {name.split(".")[1].strip("_") for name in operators.seen if name.startswith("aten.")}
    for name, count in recorded.items():
        base = name.removeprefix("aten::").strip("_")
        if base in COMPUTE_OPS and base not in seen and not _is_part(base, seen):
            operators.seen[f"hidden.{base}"] += count
    merged = operators.seen + foreign
    return {"operators": dict(merged.most_common(_MAX_NAMES)), "extension_calls": calls}


def _is_part(base: str, seen: set[str]) -> bool:
    """Whether a recorded operator is one that the mode knows by the name of its parts, or by that of the whole."""
    return bool(seen & COMPUTE_OPS) or any(base in name or name in base for name in seen)


def _config(state: str, experimental: Any) -> Any:
    """Names of operators only: no shapes, memory, stacks, flops or modules."""
    return _autograd.ProfilerConfig(
        getattr(_autograd.ProfilerState, state), False, False, False, False, False, experimental)


@contextlib.contextmanager
def _recorder(names: Counter[str], all_threads: bool) -> Iterator[None]:
    """Counts operators by torch's own recorder; counts nothing where this torch offers none."""
    if all_threads:
        settings = _ExperimentalConfig(profile_all_threads=True)
        config = _autograd.ProfilerConfig(_autograd.ProfilerState.KINETO, False, False, False, False, False, settings)
        _autograd._prepare_profiler(config, {Activity.CPU})
        _autograd._enable_profiler(config, {Activity.CPU})
    else:
        _autograd._enable_profiler_legacy(_config("CPU", _ExperimentalConfig()))
    try:
        yield
    finally:
        if all_threads:
            names.update(str(event.name()) for event in _autograd._disable_profiler().events())
        else:
            ended = _autograd._disable_profiler_legacy()
            names.update(str(event.name()) for thread in ended for event in thread)


def device_kernels(call: Callable[[], Any]) -> dict[str, float]:
    """Kernels that one call launches on the device, with their microseconds.

    The first use of the profiler in a process costs seconds, so this is asked for few candidates only.
    """
    import torch
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as record:
        call()
        torch.cuda.synchronize()
    times: dict[str, float] = {}
    for event in record.events() or ():
        if event.device_type == DeviceType.CUDA:
            name = event.name[:200]
            times[name] = times.get(name, 0.0) + float(event.device_time_total)
    return dict(sorted(times.items(), key=lambda pair: -pair[1])[:_MAX_NAMES])
