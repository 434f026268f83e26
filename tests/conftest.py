"""Shared fixtures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dice_core.lake.catalog import Lake

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real third-party data: `DICE_TEST_DATA`, or `../shared/data` beside the checkout."""
    folder = Path(os.environ.get("DICE_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no real data: set DICE_TEST_DATA to a folder with kernelbench/, cuda_l1/, dice/")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip `gpu` tests where there is no CUDA device."""
    if not any("gpu" in item.keywords for item in items):
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session")
def filled_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose lake holds plausible data; made once for all tests that read it. Do not write to it."""
    import synthetic

    home = tmp_path_factory.getbasetemp() / "filled"
    synthetic.fill(home)
    return home


@pytest.fixture
def home(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with an empty lake of its own: a copy, since making the tables takes most of a second."""
    from dice_core.lake.catalog import Lake

    template = tmp_path_factory.getbasetemp() / "template"
    if not template.exists():
        Lake.open(template).close()
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture(scope="session")
def filled(filled_home: Path) -> Iterator[Lake]:
    """The filled lake, open for reading."""
    from dice_core.lake.catalog import Lake

    with Lake.open(filled_home, read_only=True) as lake:
        yield lake
