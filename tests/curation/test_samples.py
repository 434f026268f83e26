from __future__ import annotations

import ast
import importlib.util
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from dice_core.curation.normalise import fingerprint
from dice_core.curation.overlap import OverlapIndex
from dice_core.curation.samples import COLUMNS, EXPECTED, Sample, generated_files, read_samples, write_rows
from dice_core.errors import ContractError, SourceError, UsageError

SOUND = ("honest_fast", "honest_slow", "wrong", "deceptive")


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return read_samples()


def of_kind(samples: list[Sample], *kinds: str) -> list[Sample]:
    return [sample for sample in samples if sample.kind in kinds]


# ---- the committed data ------------------------------------------------------------------------------------------


def test_generated_files_are_up_to_date() -> None:
    for path, text in generated_files().items():
        assert path.read_text(encoding="utf-8") == text, f"run python -m dice_core.curation.samples: {path.name}"


def test_every_kind_and_every_expectation_occurs(samples: list[Sample]) -> None:
    counts = Counter(sample.kind for sample in samples)
    assert len(samples) >= 54
    assert set(counts) == set(EXPECTED)
    assert counts["honest_fast"] >= 20 and counts["honest_slow"] >= 8
    assert {sample.expect for sample in samples} == {expect for group in EXPECTED.values() for expect in group}


def test_card_and_source_state_the_counts(samples: list[Sample], root: Path) -> None:
    folder = root / "datasets" / "samples"
    card = (folder / "README.md").read_text(encoding="utf-8")
    stated = {kind: int(number) for kind, number in re.findall(r"^\| `(\w+)` \| (\d+) \|", card, re.MULTILINE)}
    assert stated == Counter(sample.kind for sample in samples)
    assert f"rows_expected = {len(samples)}" in (folder / "source.toml").read_text(encoding="utf-8")


def test_claims_disagree_with_kinds_somewhere(samples: list[Sample]) -> None:
    """A filter on claims and a filter on measurements must be able to give different answers."""
    assert any(sample.speedup_over_eager < 2.0 for sample in of_kind(samples, "honest_fast"))
    assert any(sample.speedup_over_eager >= 2.0 for sample in of_kind(samples, "honest_slow"))
    for sample in of_kind(samples, "wrong", "deceptive"):
        assert sample.claim_note, sample.name


def test_only_meant_duplicates_are_duplicates(samples: list[Sample]) -> None:
    for device in ("cpu", "cuda"):
        seen: dict[tuple[str, str], str] = {}
        doubled = []
        for sample in of_kind(samples, *SOUND, "duplicate"):
            key = (fingerprint(sample.pytorch), fingerprint(sample.kernels[device]))
            if key in seen:
                doubled.append(sample.name)
            seen.setdefault(key, sample.name)
        assert doubled == [sample.name for sample in of_kind(samples, "duplicate")]


def test_some_duplicates_differ_as_text(samples: list[Sample]) -> None:
    texts = {sample.kernels["cpu"] for sample in of_kind(samples, *SOUND)}
    copies = [sample.kernels["cpu"] in texts for sample in of_kind(samples, "duplicate")]
    assert copies.count(True) == copies.count(False) == 2


def test_devices_use_their_own_toolchain(samples: list[Sample]) -> None:
    for sample in of_kind(samples, "honest_fast", "honest_slow", "wrong"):
        assert "__global__" in sample.kernels["cuda"] and "<<<" in sample.kernels["cuda"], sample.name
        assert "cuda" not in sample.kernels["cpu"].lower(), sample.name
        assert all("load_inline(" in code for code in sample.kernels.values()), sample.name


def test_sizes_are_small_and_numbers_are_random_draws(samples: list[Sample], tmp_path: Path) -> None:
    for sample in of_kind(samples, *SOUND):
        tensors = load_reference(sample, tmp_path).get_inputs()
        total = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        assert 4 << 10 <= total <= 4 << 20, f"{sample.name}: {total} bytes of input"
        body = next(node for node in ast.parse(sample.pytorch).body if getattr(node, "name", "") == "get_inputs")
        assert re.search(r"torch\.randn?\(", ast.unparse(body)), sample.name


def test_references_run_and_keep_their_inputs(samples: list[Sample], tmp_path: Path) -> None:
    torch.set_num_threads(1)
    for sample in of_kind(samples, *SOUND):
        reference = load_reference(sample, tmp_path)
        torch.manual_seed(0)
        model = reference.Model(*reference.get_init_inputs())
        inputs = reference.get_inputs()
        before = [tensor.clone() for tensor in inputs]
        with torch.no_grad():
            result = model(*inputs)
        for output in result if isinstance(result, tuple) else (result,):
            assert output.numel() > 0, sample.name
            assert not output.is_floating_point() or bool(torch.isfinite(output).all()), sample.name
        assert all(torch.equal(old, new) for old, new in zip(before, inputs, strict=True)), sample.name


def test_state_has_the_same_names_on_both_sides(samples: list[Sample]) -> None:
    """Read from the text, since kernels are only ever run by the arena."""
    for sample in of_kind(samples, "honest_fast", "honest_slow", "wrong"):
        for device in ("cpu", "cuda"):
            assert state_names(sample.kernels[device], "ModelNew") == state_names(sample.pytorch, "Model"), sample.name


def test_no_module_is_a_benchmark_problem(samples: list[Sample], real_data: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = real_data / "kernelbench" / "kernelbench_v0_2.parquet"
    if not file.is_file():
        pytest.skip(f"no {file.name}")
    rows = parquet.read_table(file).to_pylist()
    index = OverlapIndex.build((row["name"], row["code"]) for row in rows)
    assert {sample.name: index.find(sample.pytorch) for sample in samples if index.find(sample.pytorch)} == {}


# ---- rows --------------------------------------------------------------------------------------------------------


def test_rows_hold_concurs_columns_and_no_answer(samples: list[Sample]) -> None:
    for sample in of_kind(samples, *SOUND, "duplicate"):
        row = sample.row("cpu")
        assert tuple(row) == COLUMNS
        assert row["generated_code"] == sample.kernels["cpu"] and row["speedup_over_eager"] > 0


def test_contract_rows_break_what_they_say(samples: list[Sample]) -> None:
    rows = {sample.name: sample.row("cpu") for sample in of_kind(samples, "contract")}
    assert rows["null_kernel"]["generated_code"] is None
    assert rows["empty_module"]["pytorch_code"] == ""
    assert rows["negative_speedup"]["speedup_over_eager"] < 0
    assert math.isnan(rows["nan_speedup"]["speedup_over_eager"])
    assert isinstance(rows["text_speedup"]["speedup_over_eager"], str)
    assert "class Model(" not in rows["no_model_class"]["pytorch_code"]
    assert "ModelNew" not in rows["no_modelnew_class"]["generated_code"]
    assert "uuid" not in rows["missing_uuid"]
    assert len(rows) == 8


def test_written_rows_read_back(samples: list[Sample], tmp_path: Path) -> None:
    path = write_rows(samples, "cuda", tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row.get("uuid", "") for row in rows] == [sample.row("cuda").get("uuid", "") for sample in samples]
    with pytest.raises(UsageError, match="'tpu'"):
        write_rows(samples, "tpu", tmp_path / "rows.jsonl")


# ---- what is refused ---------------------------------------------------------------------------------------------

GOOD = """
name = "good"
uuid = "b4b4f6a2-6c0b-4b8e-9f53-6f6b6a2f3d11"
kind = "honest_fast"
expect = "CORRECT"
speedup_over_eager = 2.5
think = "why"
pytorch = '''
class Model: pass
def get_inputs(): return []
def get_init_inputs(): return []
'''
cpu = "class ModelNew: pass"
cuda = "class ModelNew: pass"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def make(**texts: str) -> Path:
        for name, text in texts.items():
            (tmp_path / f"{name.removeprefix('n')}.toml").write_text(text, encoding="utf-8")
        return tmp_path

    return make


def test_a_good_sample_is_read(folder: Callable[..., Path]) -> None:
    (sample,) = read_samples(folder(n01_good=GOOD))
    assert sample.row("cpu")["problem_name"] == "good" and sample.claim_note == ""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("speedup_over_eager = 2.5", "", "field speedup_over_eager is missing"),
        ("speedup_over_eager = 2.5", 'speedup_over_eager = "2.5"', "field speedup_over_eager must be a number"),
        ('think = "why"', "", "field think is missing"),
        ('think = "why"', "think = 3", "field think must be a text"),
        ('think = "why"', 'think = "why"\nlevel = 1', "field level is not known"),
        ('"honest_fast"', '"honest"', "field kind is 'honest'"),
        ('"CORRECT"', '"duplicate"', "field expect is 'duplicate'"),
        ("b4b4f6a2", "b4b4", "is no UUID"),
        ('name = "good"', 'name = "other"', "<number>_<name>.toml"),
        ("class Model: pass", "class Other: pass", "field pytorch defines no Model"),
        ('cuda = "class ModelNew: pass"', 'cuda = "class ModelNew: ("', "field cuda, line 1"),
        ('think = "why"', 'think = "why"\noverride = { speed = 1 }', "column speed is none of"),
        ('think = "why"', 'think = "why"\ncopy_of = "good"', "no earlier sample is named 'good'"),
    ],
)
def test_a_bad_sample_names_file_and_field(folder: Callable[..., Path], old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ContractError, match=re.escape(message)) as caught:
        read_samples(folder(n01_good=GOOD.replace(old, new, 1)))
    assert "01_good.toml" in str(caught.value)


def test_names_and_ids_are_unique(folder: Callable[..., Path]) -> None:
    twin = GOOD.replace('name = "good"', 'name = "twin"')
    with pytest.raises(ContractError, match=r"02_twin.*already taken by 01_good"):
        read_samples(folder(n01_good=GOOD, n02_twin=twin))


def test_unreadable_sources(folder: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no sample"):
        read_samples(tmp_path)
    with pytest.raises(UsageError, match="no such folder"):
        read_samples(tmp_path / "absent")
    with pytest.raises(SourceError, match=r"01_good\.toml: not TOML"):
        read_samples(folder(n01_good="name = "))
    (tmp_path / "01_good.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(SourceError, match=r"01_good\.toml: byte 8 is not UTF-8"):
        read_samples(tmp_path)


def load_reference(sample: Sample, folder: Path) -> ModuleType:
    """Import a reference, as any module of ours, from a file."""
    path = folder / f"reference_{sample.name}.py"
    path.write_text(sample.pytorch, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def state_names(source: str, class_name: str) -> list[tuple[str, str]]:
    """(attribute, constructor text) of parameters, buffers and submodules that a class creates, in order."""
    tree = ast.parse(source)
    owner = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    made = []
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            call = ast.unparse(node.value)
            if call.startswith("nn."):
                made.append((ast.unparse(node.targets[0]), call))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "self.register_buffer":
            made.append((ast.unparse(node.args[0]), ast.unparse(node)))
    return made
