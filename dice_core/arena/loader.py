"""Loading a built extension inside the untrusted process.

Modules of all tiers are ordinary CPython extensions: the bindings convert tensors in C++, so no Python
layer is added to a call.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from dice_core.arena.build import BuildResult


class LoadError(RuntimeError):
    """The artefact of a build could not be imported; the text is the dynamic linker's or the module's own."""


def load_artefact(result: BuildResult) -> ModuleType:
    """Import the shared library of `result` under its content-unique module name.

    torch must be imported before, so that libtorch is in the process and registers what it registers once.

    Raises:
        LoadError: there is no artefact, it cannot be linked, or its init function raised.
    """
    if result.status != "ok" or not result.artefact:
        raise LoadError(f"nothing to load: the build ended with {result.status}: {result.log[:2000]}")
    known = sys.modules.get(result.module_name)
    if known is not None:
        return known
    if not Path(result.artefact).is_file():
        raise LoadError(f"the artefact is missing: {result.artefact}")
    loader = importlib.machinery.ExtensionFileLoader(result.module_name, result.artefact)
    spec = importlib.util.spec_from_file_location(result.module_name, result.artefact, loader=loader)
    if spec is None:
        raise LoadError(f"Python does not take {result.artefact} for an extension module")
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except Exception as error:  # an init function may raise anything
        raise LoadError(f"{type(error).__name__}: {error}") from error
    sys.modules[result.module_name] = module
    return module
