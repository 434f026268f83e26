"""Loads `synthetic.py` (pytest imports test files without putting folders on sys.path) and fills one lake a session."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dice_core.lake.catalog import Lake

_HERE = Path(__file__).resolve().parents[1] / "lake" / "synthetic.py"


def _load() -> ModuleType:
    if "synthetic" not in sys.modules:
        spec = importlib.util.spec_from_file_location("synthetic", _HERE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["synthetic"] = module
        spec.loader.exec_module(module)
    return sys.modules["synthetic"]


_load()


@pytest.fixture(scope="session")
def filled_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose lake holds plausible data; made once, shared by the folders lake, sql and report. Do not write."""
    home = tmp_path_factory.getbasetemp() / "filled"
    if not home.exists():
        _load().fill(home)
    return home


@pytest.fixture
def home(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with an empty lake of its own: a copy, since making the tables takes most of a second."""
    template = tmp_path_factory.getbasetemp() / "template"
    if not template.exists():
        Lake.open(template).close()
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture(scope="session")
def filled(filled_home: Path) -> Iterator[Lake]:
    """The filled lake, open for reading."""
    with Lake.open(filled_home, read_only=True) as lake:
        yield lake
