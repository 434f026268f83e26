"""Fixtures of the tests of curation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from curation_rows import kernel, module, raw_row, training_record

from dice_core.records import TrainingRecord


@pytest.fixture
def make_row() -> Callable[..., dict[str, Any]]:
    """`make_row(number, **changes)`: a good row with some fields replaced."""
    return raw_row


@pytest.fixture
def make_record() -> Callable[..., TrainingRecord]:
    """`make_record(number, **changes)`: a good record with some fields replaced."""
    return training_record


@pytest.fixture
def make_module() -> Callable[..., str]:
    return module


@pytest.fixture
def make_kernel() -> Callable[..., str]:
    return kernel


@pytest.fixture(scope="session")
def suite_path(root: Path) -> Path:
    return root / "datasets" / "concur" / "contract.json"
