"""Import problem and kernel texts as modules, with the compiler replaced."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from dice_core.arena.capture import BuildRequest, CapturePlaceholder, fake_cpp_extension
from dice_core.files import sha256_bytes


def import_text(source: str, folder: Path, handler: Callable[[BuildRequest], Any] | None = None) -> ModuleType:
    """Write `source` to `folder` and import it; its `load_inline` calls go to `handler` (default: a placeholder)."""
    path = folder / f"m{sha256_bytes(source)[:16]}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    fake = fake_cpp_extension(handler or (lambda request: CapturePlaceholder(request.name)))
    with mock.patch.dict(sys.modules, {"torch.utils.cpp_extension": fake}):
        spec.loader.exec_module(module)
    return module


def run_reference(module: ModuleType, model_seed: int, input_seed: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """A reference built under one seed, and its output on inputs drawn under another."""
    torch.manual_seed(model_seed)
    model = module.Model(*module.get_init_inputs())
    torch.manual_seed(input_seed)
    with torch.no_grad():
        return model, model(*module.get_inputs())


def assert_discriminating(source: str, folder: Path) -> None:
    """A reference runs, is finite, and its output depends on its input and, if it has any, on its weights."""
    module = import_text(source, folder)
    model, output = run_reference(module, 0, 1)
    assert output.dtype == torch.float32 and bool(torch.isfinite(output).all())
    assert output.std() > 0.01, "the output is close to a constant"
    _, other_input = run_reference(module, 0, 2)
    assert not torch.allclose(output, other_input, atol=1e-2, rtol=1e-2), "the output hardly depends on the input"
    if next(model.parameters(), None) is not None:
        _, other_weights = run_reference(module, 3, 1)
        assert not torch.allclose(output, other_weights, atol=1e-2, rtol=1e-2), "the weights hardly matter"


def assert_same_state(reference: str, kernel: str, folder: Path) -> list[BuildRequest]:
    """`ModelNew` takes `Model`'s state as it is; returns what the kernel asks to be compiled."""
    requests: list[BuildRequest] = []

    def keep(request: BuildRequest) -> CapturePlaceholder:
        requests.append(request)
        return CapturePlaceholder(request.name)

    problem, candidate = import_text(reference, folder), import_text(kernel, folder, keep)
    arguments = problem.get_init_inputs()
    candidate.ModelNew(*arguments).load_state_dict(problem.Model(*arguments).state_dict(), strict=True)
    return requests
