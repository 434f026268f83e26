"""Notes of what one call does: torch operators, by a dispatch mode, and calls into the candidate's own extensions.

Installed by the harness inside the untrusted process, so this is evidence, not proof.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_own_functions: dict[int, Any] = {}
_MAX_NAMES = 200


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


def trace(call: Callable[[], Any]) -> dict[str, Any]:
    """Run `call` once; returns operator names with counts and the number of calls into own extensions."""
    calls = 0

    def note(_frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event == "c_call" and id(argument) in _own_functions:
            calls += 1

    operators = _Operators()
    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        with operators:
            call()
    finally:
        sys.setprofile(previous)
    return {"operators": dict(operators.seen.most_common(_MAX_NAMES)), "extension_calls": calls}


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
