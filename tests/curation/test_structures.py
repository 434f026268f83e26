from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from candidate_modules import assert_discriminating, assert_same_state, import_text

from dice_core.arena.build import BuildFarm
from dice_core.arena.capture import BuildRequest
from dice_core.arena.loader import load_artefact
from dice_core.curation.generators import OfflineLibrary
from dice_core.curation.structures import FAMILIES, StructureTask, load_structures, read_structure
from dice_core.errors import ContractError, SourceError, UsageError

FOLDER = Path(__file__).parents[2] / "datasets" / "structures"
LIBRARY = OfflineLibrary(load_structures(FOLDER))
CPU_TASKS = LIBRARY.tasks("cpu")
FIRST_OF_EACH = list({task.name: task for task in reversed(CPU_TASKS)}.values())

GOOD = """
name = "double"
family = "activation"
description = "Twice the input."
dims = [{ SIZE = 2 }, { SIZE = 3 }, { SIZE = 4 }]
pytorch = '''
class Model(object): pass
size = $SIZE
def get_inputs(): pass
def get_init_inputs(): pass
'''
cpu = '''
class ModelNew(object): pass
load_inline("$SIZE")
'''
cuda = '''
class ModelNew(object): pass
load_inline("__global__ ${SIZE}")
'''
"""


def test_library_covers_the_structures_of_a_language_model() -> None:
    structures = load_structures(FOLDER)
    assert len(structures) >= 36
    assert sum(structure.space is not None for structure in structures) >= 40
    assert {structure.family for structure in structures} == set(FAMILIES)
    assert {"mha_causal", "gqa_decode", "swiglu_mlp", "rmsnorm_residual", "rope", "masked_softmax"} <= {
        structure.name for structure in structures
    }
    names = [task.problem_name for task in CPU_TASKS]
    assert len(set(names)) == len(names) >= 3 * len(structures)
    assert names == [task.problem_name for task in LIBRARY.tasks("cuda")]
    assert load_structures(FOLDER) == structures


@pytest.mark.parametrize("task", CPU_TASKS, ids=lambda task: task.problem_name)
def test_references_depend_on_inputs_and_weights(task: StructureTask, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    assert_discriminating(task.pytorch_code, tmp_path)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", [task.name for task in FIRST_OF_EACH])
def test_kernels_keep_parameters_and_ask_for_one_build(name: str, device: str, tmp_path: Path) -> None:
    for task in LIBRARY.tasks(device):
        if task.name == name:
            requests = assert_same_state(task.pytorch_code, task.kernel_code, tmp_path)
            assert len(requests) == 1 and requests[0].with_cuda == (device == "cuda")
            assert "$" not in task.pytorch_code + task.kernel_code


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("builds")


def _assert_kernel_correct(task: StructureTask, cache: Path, folder: Path) -> None:
    farm = BuildFarm(cache, device="cpu", jobs=1)

    def build(request: BuildRequest) -> Any:
        return load_artefact(farm.build(request))

    problem, candidate = import_text(task.pytorch_code, folder), import_text(task.kernel_code, folder, build)
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        model = problem.Model(*problem.get_init_inputs())
        kernel = candidate.ModelNew(*problem.get_init_inputs())
        kernel.load_state_dict(model.state_dict())
        inputs = problem.get_inputs()
        with torch.no_grad():
            expected, got = model(*inputs), kernel(*[one.clone() for one in inputs])
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
        wrong_shape = [torch.zeros(3), *inputs[1:]]
        with pytest.raises(RuntimeError, match="must be"):
            kernel(*wrong_shape)


def test_a_compiled_kernel_is_right_and_refuses_other_shapes(cache: Path, tmp_path: Path) -> None:
    task = next(task for task in CPU_TASKS if task.name == "rmsnorm_residual")
    _assert_kernel_correct(task, cache, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("task", LIBRARY.tasks("cpu", sets=1, drawn=1), ids=lambda task: task.problem_name)
def test_every_compiled_kernel_is_right(task: StructureTask, cache: Path, tmp_path: Path) -> None:
    _assert_kernel_correct(task, cache, tmp_path)


def test_offline_library_answers_only_for_what_it_holds() -> None:
    known = CPU_TASKS[0]
    assert LIBRARY.generate(known) == known.kernel_code
    cuda = next(task for task in LIBRARY.tasks("cuda") if task.problem_name == known.problem_name)
    assert LIBRARY.generate(cuda) == cuda.kernel_code != known.kernel_code
    fields = {**vars(known)}
    assert LIBRARY.generate(StructureTask(**{**fields, "name": "unheard_of"})) is None
    assert LIBRARY.generate(StructureTask(**{**fields, "device": "tpu"})) is None
    assert LIBRARY.generate(StructureTask(**{**fields, "pytorch_code": known.pytorch_code + "\n# other"})) is None


def test_good_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "double.toml"
    path.write_text(GOOD)
    tasks = read_structure(path).instances("cuda")
    assert [task.problem_name for task in tasks] == ["double_size2", "double_size3", "double_size4"]
    assert 'load_inline("__global__ 4")' in tasks[2].kernel_code
    with pytest.raises(UsageError, match=r"double.*tpu"):
        read_structure(path).instances("tpu")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('family = "activation"', "", "field family is missing"),
        ('family = "activation"', 'family = "conv"', "field family is 'conv'"),
        ('name = "double"', 'name = "twice"', "field name is 'twice'"),
        ('description = "Twice the input."', 'description = ""', "field description must be a text"),
        ('description = "Twice', 'speed = 2\ndescription = "Twice', "field speed is not known"),
        ("size = $SIZE", "size = $SIZE + $DEPTH", r"field pytorch uses \$DEPTH"),
        ("size = $SIZE", "size = 4", r"field pytorch never uses \$SIZE"),
        ('load_inline("$SIZE")', 'load_inline("$SIZE costs 5$ ")', r"field cpu, line 2: a `\$`"),
        ('class ModelNew(object): pass\nload_inline("__', 'load_inline("__', r"field cuda has no `class ModelNew\(`"),
        ("__global__ ", "", "field cuda has no `__global__`"),
        (", { SIZE = 4 }", "", "field dims must be a list of at least 3"),
        ("{ SIZE = 4 }", "{ SIZE = 3 }", r"field dims\[2\] repeats \[1\]"),
        ("{ SIZE = 4 }", "{ SIZE = 0 }", r"field dims\[2\].SIZE must be a whole number above 0, got 0"),
        ("{ SIZE = 4 }", "{ SIZE = true }", r"field dims\[2\].SIZE .* got True"),
        ("{ SIZE = 4 }", "{ SIZE = 4.5 }", r"field dims\[2\].SIZE .* got 4.5"),
        ("{ SIZE = 4 }", "{ WIDTH = 4 }", r"field dims\[2\] has WIDTH, but \[0\] has SIZE"),
        ("SIZE", "Size", r"field dims\[0\].Size: a dimension is named in capitals"),
    ],
)
def test_broken_rule_names_file_and_field(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    path = tmp_path / "double.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ContractError, match=message) as error:
        load_structures(tmp_path)
    assert str(path) in str(error.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        load_structures(tmp_path / "absent")
    with pytest.raises(UsageError, match="no structure"):
        load_structures(tmp_path)
    path = tmp_path / "double.toml"
    path.write_bytes(GOOD.encode() + b"# \xff")
    with pytest.raises(SourceError, match=f"{path}: byte {len(GOOD.encode()) + 2} is not UTF-8"):
        load_structures(tmp_path)
    path.write_text(GOOD[: len(GOOD) // 2])
    with pytest.raises(SourceError, match=f"{path}: not TOML"):
        load_structures(tmp_path)
