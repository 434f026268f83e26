"""Loads `helpers.py` under the name `arena_helpers` (pytest puts no test folder on sys.path)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_HELPERS = Path(__file__).resolve().parents[1] / "arena" / "helpers.py"

if "arena_helpers" not in sys.modules:
    spec = importlib.util.spec_from_file_location("arena_helpers", _HELPERS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["arena_helpers"] = module
    spec.loader.exec_module(module)
