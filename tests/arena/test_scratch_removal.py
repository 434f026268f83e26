"""A candidate's folder is removed however deep it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dice_core.arena.scratch import remove_tree


def test_folders_nested_deeper_than_the_stack_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "beside").mkdir()
    monkeypatch.chdir(folder)
    for number in range(3000):
        os.mkdir("d")
        os.chdir("d")
        if number % 500 == 0:
            Path("file").write_text("x")
            os.symlink(tmp_path, "link")
    os.chdir(tmp_path)
    (tmp_path / "kept").write_text("x")
    remove_tree(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    remove_tree(tmp_path / "nothing")
