from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dice_core.errors import UsageError
from dice_core.records import TrainingRecord
from dice_core.settings import Settings
from tasks.augment import generator_identity, worth_measuring

ENDPOINT = {"generator": "endpoint", "generator_url": "https://host/v1", "generator_model": "coder"}
OWN = '''
from torch.utils.cpp_extension import load_inline
source = """torch::Tensor run(torch::Tensor x) {
  auto out = torch::empty_like(x);
  for (int i = 0; i < 4; ++i) out.data_ptr<float>()[i] = 1;
  return out;
}"""
built = load_inline(name="k", cpp_sources=source, functions=["run"])
'''


def settings_of(folder: Path, **flags: Any) -> Settings:
    return Settings.load({"home": folder, **flags}, env={})


def test_the_library_leaves_no_trace_in_a_curations_identity(tmp_path: Path) -> None:
    assert generator_identity(settings_of(tmp_path)) == {}


def test_an_endpoint_is_known_by_what_decides_its_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DICE_GENERATOR_KEY", "sk-secret")
    one = generator_identity(settings_of(tmp_path, **ENDPOINT))
    assert (one["host"], one["model"]) == ("host", "coder") and "sk-secret" not in repr(one)
    assert one != generator_identity(settings_of(tmp_path, **ENDPOINT, generator_temperature=0.0))
    # What asking may use changes how far it gets, not what is answered.
    assert one == generator_identity(settings_of(tmp_path, **ENDPOINT, generator_token_budget=5))
    with pytest.raises(UsageError, match="generator_url must be an address"):
        generator_identity(settings_of(tmp_path, generator="endpoint"))


def test_deceptive_text_never_runs(tmp_path: Path) -> None:
    head = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return "
    library = TrainingRecord("src_1", "norm/s/A=1", "aug_1", "s", "class Model: pass", head + "torch.relu(x)\n",
                             origin="augmentation", structure="s")
    honest = TrainingRecord("src_1", "norm/s/A=2", "aug_2", "s", "class Model: pass", OWN + head + "built.run(x)\n",
                            origin="augmentation", structure="s")
    assert [record.uuid for record in worth_measuring([library, honest])] == ["aug_2"]
