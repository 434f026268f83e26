"""Backbone: configs of both layouts, strict weights, exact save and load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3ForCausalLM

from dice_core.errors import SourceError
from dice_core.model import backbone
from dice_core.model.attention import RowIds
from tests.model.conftest import architecture

MakeModel = Callable[..., Qwen3ForCausalLM]


def forward(model: Qwen3ForCausalLM) -> torch.Tensor:
    n = torch.arange(8)
    with torch.no_grad():
        hidden = backbone.hidden_states(model, n[None], n[None], mask=(n[:, None] // 4 >= n // 4)[None, None])
        return model.lm_head(hidden)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_save_and_load_are_exact(tmp_path: Path, tied: bool) -> None:
    model = backbone.build(architecture(tie_word_embeddings=tied), seed=2)
    backbone.save(model, tmp_path)
    loaded = backbone.load(tmp_path)
    assert torch.equal(forward(model), forward(loaded))
    assert backbone.architecture_of(loaded) == architecture(tie_word_embeddings=tied)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert ("lm_head.weight" in load_file(tmp_path / "model.safetensors")) == (not tied)


def test_stock_transformers_opens_the_folder(tmp_path: Path) -> None:
    model = backbone.build(architecture(), seed=2)
    backbone.save(model, tmp_path)
    stock = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(stock) is Qwen3ForCausalLM
    assert stock.config.block_size == 4
    for name, tensor in model.state_dict().items():
        assert torch.equal(stock.state_dict()[name], tensor)


def test_shards_are_read(tmp_path: Path) -> None:
    model = backbone.build(architecture(), seed=2)
    backbone.save(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in halves.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(forward(backbone.load(tmp_path)), forward(model))


def test_same_seed_same_weights_and_the_callers_random_state_is_kept() -> None:
    torch.manual_seed(11)
    state = torch.get_rng_state()
    first, second, other = (backbone.build(architecture(), seed=s) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(forward(first), forward(second))
    assert not torch.equal(forward(first), forward(other))


@pytest.mark.parametrize("change", ["missing", "extra", "shape"])
def test_keys_must_match_exactly(tmp_path: Path, change: str) -> None:
    backbone.save(backbone.build(architecture(), seed=2), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.norm.weight"
    if change == "missing":
        del tensors[name]
    elif change == "extra":
        name = "model.norm.bias"
        tensors[name] = torch.zeros(3)
    else:
        tensors[name] = torch.zeros(5)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match=name):
        backbone.load(tmp_path)


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"holds no config\.json"):
        backbone.load(tmp_path)
    backbone.save(backbone.build(architecture(), seed=2), tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(SourceError, match=r"model\.safetensors"):
        backbone.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(SourceError, match="not JSON"):
        backbone.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, "model_type"),
        ({"block_size": None}, "block_size"),
        ({"attention_bias": True}, "attention_bias"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "yarn"),
    ],
)
def test_configs_we_cannot_run_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        backbone.Architecture.from_config({**architecture().to_config(), **changes})


def test_architecture_is_checked() -> None:
    with pytest.raises(ValueError, match="block_size"):
        architecture(block_size=0)
    with pytest.raises(ValueError, match="mask_token_id"):
        architecture(mask_token_id=61)


@pytest.mark.parametrize("name", ["config_4b.json", "config_8b.json"])
def test_sdar_configs_are_read(real_data: Path, name: str) -> None:
    config = json.loads((real_data / "sdar_tokenizer" / name).read_text())
    found = backbone.Architecture.from_config(config, where=name)
    assert (found.block_size, found.mask_token_id, found.vocab_size) == (4, 151669, 151936)
    assert found.hidden_size == config["hidden_size"]
    assert found.rope_theta == 1_000_000.0
    assert found.pad_token_id == 151643


def test_sdar_layout_of_a_checkpoint_loads(tmp_path: Path) -> None:
    """14: SDAR's keys, named by an SDAR config, load strictly into the stock network."""
    model = backbone.build(architecture(), seed=2)
    backbone.save(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "sdar", "rope_theta": 1_000_000, "torch_dtype": "bfloat16", "rope_scaling": None}
    for name in ("rope_parameters", "dtype", "pad_token_id"):
        del config[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert torch.equal(forward(backbone.load(tmp_path)), forward(model))


def test_row_ids_move_together() -> None:
    ids = RowIds(*(torch.arange(3) for _ in range(4)))
    assert len(ids.to(torch.device("cpu"))) == 3
