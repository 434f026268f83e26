"""The law of the house: imports run one way, each library has one door, data folders shadow nothing."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("dice_core", "tasks", "flows")
#: module -> the only files (by prefix) that may import it
DOORS = {
    "prefect": ("flows/", "tasks/"),
    "mlflow": ("dice_core/tracking.py", "dice_core/model/pyfunc.py"),
    "duckdb": ("dice_core/lake/",),
    "huggingface_hub": ("dice_core/curation/hub.py",),
    "great_expectations": ("dice_core/curation/contracts.py",),
    "httpx": ("dice_core/curation/endpoint.py",),
    "typer": ("flows/",),
    "rich": ("flows/",),
}
BANNED = ("pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal")
#: The part that travels to GPU boxes, and what those boxes have.
CARRIED = ("dice_core/arena/", "dice_core/bench/", "dice_core/records.py", "dice_core/schemas.py",
           "dice_core/errors.py", "dice_core/files.py", "dice_core/settings.py", "dice_core/environment.py",
           "dice_core/lake/attempts.py",
           "dice_core/lake/__init__.py", "dice_core/__init__.py")
TRAINING = ("dice_core/model/", "dice_core/train/")


def sources(root: Path) -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            yield path.relative_to(root).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction of the law"
            yield node.module or ""


def test_imports_run_one_way(root: Path) -> None:
    forbidden = {"dice_core": {"tasks", "flows"}, "tasks": {"flows"}, "flows": set[str]()}
    wrong = [
        f"{name} imports {module}"
        for name, tree in sources(root)
        for module in imports(tree)
        if module.split(".")[0] in forbidden[name.split("/")[0]]
    ]
    assert wrong == []


def test_each_library_has_one_door(root: Path) -> None:
    wrong = [
        f"{name} imports {module}"
        for name, tree in sources(root)
        for module in imports(tree)
        for library, doors in DOORS.items()
        if module.split(".")[0] == library and not name.startswith(doors)
    ]
    assert wrong == []


def test_no_pickle_anywhere(root: Path) -> None:
    wrong = [f"{name} imports {m}" for name, tree in sources(root) for m in imports(tree) if m.split(".")[0] in BANNED]
    for name, tree in sources(root):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save"):
                wrong.append(f"{name}:{node.lineno} uses torch.{node.attr}")
    assert wrong == []


def test_environment_is_read_in_settings_only(root: Path) -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in sources(root)
        if name != "dice_core/settings.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "putenv")
        and isinstance(node.value, ast.Name) and node.value.id == "os"
    ]
    assert wrong == []


def test_candidate_code_is_executed_in_the_arena_only(root: Path) -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in sources(root)
        if not name.startswith("dice_core/arena/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("exec", "eval")
    ]
    assert wrong == []


def third_party(tree: ast.Module) -> set[str]:
    return {m.split(".")[0] for m in imports(tree)} - set(sys.stdlib_module_names) - {"dice_core"}


def test_what_travels_needs_little(root: Path) -> None:
    wrong = []
    for name, tree in sources(root):
        allowed = {"torch", "numpy", "pyarrow"}
        if name.startswith(TRAINING):
            allowed |= {"transformers", "tokenizers", "safetensors"}
            if name == "dice_core/model/pyfunc.py":
                allowed |= {"mlflow", "pandas"}
        elif not name.startswith(CARRIED):
            continue
        wrong += [f"{name} imports {extra}" for extra in sorted(third_party(tree) - allowed)]
    assert wrong == []


def test_data_folders_hold_no_code(root: Path) -> None:
    wrong = [p for folder in ("mlflow", "datasets", "sql") for p in (root / folder).rglob("*.py*")]
    assert wrong == []
    assert all((root / folder).is_dir() for folder in ("mlflow", "datasets", "sql"))


@pytest.mark.parametrize("name", ["mlflow", "datasets"])
@pytest.mark.parametrize("way", [["-c"], ["-m", "timeit", "-n1", "-r1"]], ids=["-c", "-m"])
def test_data_folders_shadow_nothing(root: Path, name: str, way: list[str]) -> None:
    """From the repository's root, `import mlflow` and `import datasets` find the real packages."""
    argv = [sys.executable, "-W", "ignore", *way, f"import {name}; print({name}.__file__)"]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True)
    assert "site-packages" in done.stdout


def test_tasks_and_flows_are_ours(root: Path) -> None:
    for name in PACKAGES:
        module = importlib.import_module(name)
        assert module.__file__ is not None
        assert Path(module.__file__).is_relative_to(root)


@pytest.mark.parametrize(
    "module", ["dice_core.lake.query", "dice_core.lake.catalog", "dice_core.report.build", "flows.cli"]
)
def test_readers_load_neither_prefect_nor_torch(module: str) -> None:
    """`dice query` and `dice report` answer at once: they never load the heavy libraries."""
    code = f"import sys, {module}; print([m for m in ('prefect', 'torch', 'mlflow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_files_stay_readable(root: Path) -> None:
    """A file is one noun; above about 400 lines it holds two."""
    long = [f"{p.relative_to(root)}: {n}" for package in PACKAGES for p in (root / package).rglob("*.py")
            if (n := len(p.read_text(encoding="utf-8").splitlines())) > 450]
    assert long == []
