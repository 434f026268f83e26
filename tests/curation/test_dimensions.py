from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dice_core.curation.augmentation import augmented_records
from dice_core.curation.dimensions import MOST_COMBINATIONS, dimension_space
from dice_core.curation.generators import OfflineLibrary
from dice_core.curation.structures import load_structures, read_snippets, read_structure
from dice_core.errors import ContractError

FILE = """
name = "pair"
family = "mlp"
description = "Two sizes."
dims = [{ ROWS = 2, DIM = 8 }, { ROWS = 3, DIM = 8 }, { ROWS = 4, DIM = 16 }]
pytorch = '''
class Model(object): pass
sizes = [$ROWS, $DIM]
def get_inputs(): pass
def get_init_inputs(): pass
'''
cpu = '''
class ModelNew(object): pass
load_inline("$ROWS")
//@ outer
'''
cuda = '''
class ModelNew(object): pass
load_inline("__global__ $DIM")
//@ inner
//@ outer
'''

[sample]
where = ["ROWS * DIM <= 64", "DIM % 8 == 0 and ROWS != 5"]

[sample.sizes]
ROWS = { low = 1, high = 8 }
DIM = [8, 12, 16]
"""
SNIPPETS = {"inner": "int inner;\n", "outer": "\n//@ inner\nint outer;\n"}
DIMS = ({"A": 2, "B": 3},)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "pair.toml"
    file.write_text(FILE, encoding="utf-8")
    return file


def test_draws_keep_the_constraints_and_repeat(path: Path) -> None:
    structure = read_structure(path, SNIPPETS)
    assert structure.space is not None
    five = structure.space.draw("pair", 5, 7, structure.dims)
    assert len({tuple(sizes.items()) for sizes in five}) == 5
    for sizes in five:
        assert sizes["ROWS"] * sizes["DIM"] <= 64 and sizes["DIM"] in (8, 16) and sizes["ROWS"] != 5
        assert sizes not in structure.dims
        assert list(sizes) == ["ROWS", "DIM"]
    assert structure.space.draw("pair", 3, 7, structure.dims) == five[:3]
    assert structure.space.draw("pair", 5, 8, structure.dims) != five
    assert structure.space.draw("other", 5, 7, structure.dims) != five
    # ROWS 1, 2, 3, 4, 6, 7, 8 with DIM 8 and 1, 2, 3, 4 with DIM 16; three of them are listed.
    assert len(structure.space.draw("pair", 100, 7, structure.dims)) == 7 + 4 - 3


def test_instances_are_listed_sets_then_drawn_ones(path: Path) -> None:
    structure = read_structure(path, SNIPPETS)
    tasks = structure.instances("cpu", sets=1, drawn=2, seed=7)
    assert [task.dims for task in tasks[:1]] == [structure.dims[0]]
    assert [task.seed for task in tasks] == [None, 7, 7]
    assert len(structure.instances("cpu")) == 3
    assert len({task.problem_name for task in structure.instances("cpu", drawn=4)}) == 7
    library = OfflineLibrary([structure])
    assert [library.generate(task) for task in tasks] == [task.kernel_code for task in tasks]


def test_records_say_how_their_sizes_came_about(path: Path) -> None:
    library = OfflineLibrary([read_structure(path, SNIPPETS)])
    tasks = library.tasks("cuda", sets=1, drawn=1, seed=7)
    _, records = augmented_records(path.parent, library, tasks)
    assert records[0].row_locator == "mlp/pair/ROWS=2,DIM=8"
    sizes = f"ROWS={tasks[1].dims['ROWS']},DIM={tasks[1].dims['DIM']}"
    assert records[1].row_locator == f"mlp/pair/{sizes} drawn with seed 7"
    assert f"[{tasks[1].dims['ROWS']}, {tasks[1].dims['DIM']}]" in records[1].pytorch_code


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("DIM = [8, 12, 16]", "", r"field sample.sizes has ROWS, but dims has ROWS, DIM"),
        ("[8, 12, 16]", "[8, 8]", r"field sample.sizes.DIM lists a size twice"),
        ("[8, 12, 16]", "[]", r"field sample.sizes.DIM must be a list"),
        ("[8, 12, 16]", "[8, true]", r"field sample.sizes.DIM must be a list"),
        ("[8, 12, 16]", "8", r"field sample.sizes.DIM must be a list"),
        ("low = 1, high = 8", "low = 9, high = 8", r"field sample.sizes.ROWS: low 9 is above high 8"),
        ("low = 1, high = 8", "low = 1", r"field sample.sizes.ROWS must be \{ low, high, step \}"),
        ("low = 1, high = 8", "low = 1, high = 8, step = 0", r"field sample.sizes.ROWS must be"),
        ("high = 8", "high = 8000", rf"field sample.sizes has 24000 combinations, more than {MOST_COMBINATIONS}"),
        ("ROWS * DIM <= 64", "ROWS * DEPTH <= 64", r"field sample.where\[0\] uses DEPTH"),
        ("ROWS * DIM <= 64", "ROWS * DIM", r"field sample.where\[0\] must be a comparison"),
        ("ROWS * DIM <= 64", "ROWS * DIM <=", r"field sample.where\[0\] is not an expression"),
        ("ROWS * DIM <= 64", "ROWS ** DIM <= 64", r"field sample.where\[0\] may only compare"),
        ("ROWS * DIM <= 64", "abs(ROWS) <= 64", r"field sample.where\[0\] uses abs"),
        ("ROWS * DIM <= 64", "ROWS <= 64.5", r"field sample.where\[0\] may only compare"),
        ("ROWS * DIM <= 64", "DIM % (ROWS - 1) == 0", r"field sample.where\[0\] .* divides by zero"),
        ("ROWS * DIM <= 64", "ROWS * DIM <= 32", r"field sample.where\[0\] .* is broken by dims\[2\]"),
        ("ROWS * DIM <= 64", "ROWS >= 2 and ROWS <= 4 and DIM == 8 or ROWS == 4 and DIM == 16 and ROWS * DIM <= 64",
         None),
        ('where = ["ROWS * DIM', 'when = ["ROWS * DIM', r"field sample.when is not known"),
        ("//@ inner", "//@ missing", r"field cuda uses the snippet 'missing'"),
        ("[sample]\n", "[other]\n", r"field other is not known|field sample"),
    ],
)
def test_a_broken_rule_names_file_and_field(path: Path, old: str, new: str, message: str | None) -> None:
    assert old in FILE
    path.write_text(FILE.replace(old, new), encoding="utf-8")
    if message is None:
        assert read_structure(path, SNIPPETS).space is not None
        return
    with pytest.raises(ContractError, match=message) as error:
        read_structure(path, SNIPPETS)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "field sample must be a table"),
        ({"sizes": []}, "field sample must be a table"),
        ({"sizes": {"A": [2], "B": [3]}}, "allows no set of sizes that dims does not list already"),
        ({"sizes": {"A": [2, 4], "B": [3]}, "where": "A > 1"}, "field sample.where must be a list"),
        ({"sizes": {"A": [2, 4], "B": [3]}, "where": [""]}, r"field sample.where\[0\] must be a text"),
        ({"sizes": {"A": [2, 4], "B": [3]}, "where": ["A > 1 or B.real > 1"]}, r"field sample.where\[0\] may only"),
    ],
)
def test_a_table_that_allows_nothing_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        dimension_space(Path("some.toml"), value, DIMS)


def test_snippets_come_with_what_they_use_and_only_once(path: Path, tmp_path: Path) -> None:
    structure = read_structure(path, SNIPPETS)
    assert structure.kernels["cpu"].endswith('load_inline("$ROWS")\nint inner;\nint outer;\n')
    assert structure.kernels["cuda"].count("int inner;") == structure.kernels["cuda"].count("int outer;") == 1
    assert "//@" not in "".join(structure.kernels.values())
    file = tmp_path / "snippets.toml"
    file.write_text("inner = 'int inner;'\nouter = '''\n//@ inner\nint outer;\n'''\n")
    assert [one.name for one in load_structures(tmp_path)] == ["pair"]
    file.write_text("outer = '''\n//@ inner\nint outer;\n'''\n")
    with pytest.raises(ContractError, match=r"snippets.toml: field outer uses the snippet 'inner'"):
        read_snippets(file)
    file.write_text("outer = 3\n")
    with pytest.raises(ContractError, match=r"snippets.toml: field outer must be a text"):
        read_snippets(file)
