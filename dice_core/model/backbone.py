"""The network: stock Qwen3 from transformers, saved as safetensors plus config.json.

SDAR and DICE checkpoints hold exactly the keys of `Qwen3ForCausalLM`; what makes the model a block-diffusion model
is the attention mask and the two values `block_size` and `mask_token_id` that its config.json carries.
"""

from __future__ import annotations

import inspect
import json
import os
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from dice_core.errors import SourceError
from dice_core.files import fsync_dir, write_atomic
from dice_core.model.attention import ATTENTION, Tile

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

# transformers renamed this keyword between the versions that DICE runs on (5.17 and 5.24).
_CACHE_KEYWORD = "cache" if "cache" in inspect.signature(Qwen3ForCausalLM.forward).parameters else "past_key_values"


@dataclass(frozen=True)
class Architecture:
    """Shape of a block-diffusion model, with the names that config.json uses.

    Sizes are in elements; `block_size` in tokens.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    block_size: int
    mask_token_id: int
    eos_token_id: int
    pad_token_id: int
    max_position_embeddings: int = 32768
    rope_theta: float = 1_000_000.0
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {self.block_size}")
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise ValueError(f"mask_token_id {self.mask_token_id} lies outside the vocabulary of {self.vocab_size}")

    def to_config(self) -> dict[str, Any]:
        """The content of config.json; stock transformers opens it as Qwen3."""
        values = asdict(self)
        theta = values.pop("rope_theta")
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            **values,
            "bos_token_id": None,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "hidden_act": "silu",
            "rope_parameters": {"rope_type": "default", "rope_theta": theta},
            "use_cache": False,
            "use_sliding_window": False,
            "dtype": "float32",
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], *, where: str = CONFIG_FILE) -> Architecture:
        """Read a config.json in our layout or SDAR's (old RoPE key, no pad id).

        Raises:
            SourceError: a field is missing, or the config asks for something this backbone does not do.
        """
        if config.get("model_type") not in ("qwen3", "sdar"):
            raise SourceError(f"{where}: model_type is {config.get('model_type')!r}, expected 'qwen3' or 'sdar'")
        for name in ("attention_bias", "use_sliding_window", "rope_scaling"):
            if config.get(name):
                raise SourceError(f"{where}: {name}={config[name]!r} is not supported")
        rope = config.get("rope_parameters") or {}
        if rope.get("rope_type", "default") != "default":
            raise SourceError(f"{where}: rope_type {rope['rope_type']!r} is not supported")
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in config.items() if name in known and value is not None}
        values["rope_theta"] = float(rope.get("rope_theta", config.get("rope_theta", cls.rope_theta)))
        if isinstance(values.get("eos_token_id"), list):
            values["eos_token_id"] = values["eos_token_id"][0]
        values.setdefault("pad_token_id", values.get("eos_token_id"))
        missing = [f.name for f in fields(cls) if f.name not in values and f.default is MISSING]
        if missing:
            raise SourceError(f"{where}: missing field {', '.join(missing)}")
        return cls(**values)


def build(architecture: Architecture, seed: int, device: str | torch.device = "cpu") -> Qwen3ForCausalLM:
    """A freshly initialised fp32 model (normal weights of std `initializer_range`), the same for the same seed.

    The global random state is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _empty(architecture)
    return cast(Qwen3ForCausalLM, model.to(device))


def architecture_of(model: Qwen3ForCausalLM) -> Architecture:
    """The architecture a model was built with."""
    return Architecture.from_config(model.config.to_dict(), where="model config")


def save(model: Qwen3ForCausalLM, folder: Path) -> None:
    """Write config.json and model.safetensors, weights first; each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(weights_of(model), folder / WEIGHTS_FILE)
    config = architecture_of(model).to_config()
    write_atomic(folder / CONFIG_FILE, json.dumps(config, indent=2, sort_keys=True) + "\n")


def load(folder: Path, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> Qwen3ForCausalLM:
    """Open a saved model for inference; keys must match exactly.

    Args:
        folder: holds config.json and model.safetensors (or shards named by model.safetensors.index.json).
        device: where the weights go.
        dtype: type of the weights in memory.

    Raises:
        SourceError: a file is missing or broken, or a key or shape does not fit the config.
    """
    model = _empty(read_architecture(folder))
    load_weights(model, read_weights(folder), where=str(folder))
    return cast(Qwen3ForCausalLM, model.to(device=device, dtype=dtype).eval())


def read_architecture(folder: Path) -> Architecture:
    """The architecture that a folder's config.json describes.

    Raises:
        SourceError: the file is missing, not JSON or incomplete.
    """
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise SourceError(f"{folder} holds no {CONFIG_FILE}: not a model folder") from None
    except ValueError as error:
        raise SourceError(f"{path}: not JSON: {error}") from None
    return Architecture.from_config(config, where=str(path))


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a model folder, from one file or from the shards that the index names.

    Raises:
        SourceError: a file is missing or not safetensors.
    """
    index = folder / INDEX_FILE
    names = [WEIGHTS_FILE]
    if index.exists():
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    tensors: dict[str, torch.Tensor] = {}
    for name in names:
        tensors |= load_tensors(folder / name)
    return tensors


def weights_of(model: Qwen3ForCausalLM) -> dict[str, torch.Tensor]:
    """State dict for storage: on the CPU, contiguous; a tied head is left out because it is the embedding."""
    state = dict(model.state_dict())
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}


def load_weights(model: Qwen3ForCausalLM, tensors: dict[str, torch.Tensor], *, where: str) -> None:
    """Copy `tensors` into `model`; every key must be there and no other.

    Raises:
        SourceError: keys or shapes differ.
    """
    tensors = dict(tensors)
    if model.config.tie_word_embeddings:
        tensors.setdefault("lm_head.weight", tensors["model.embed_tokens.weight"])
    try:
        model.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        raise SourceError(f"{where}: weights do not fit the config: {error}") from None


def save_tensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Write a safetensors file under a temporary name, sync it and put it in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    save_file(tensors, temporary, metadata={"format": "pt"})
    fd = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
    fsync_dir(path.parent)


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read a safetensors file.

    Raises:
        SourceError: the file is missing or broken.
    """
    try:
        return cast(dict[str, torch.Tensor], load_file(path))
    except (FileNotFoundError, SafetensorError) as error:
        raise SourceError(f"{path}: cannot be read as safetensors: {error}") from None


def hidden_states(
    model: Qwen3ForCausalLM,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    block_tiles: list[Tile] | None = None,
    cache: object | None = None,
) -> torch.Tensor:
    """Run the body of the network (everything but the head).

    Args:
        model: the network.
        tokens: token ids [batch, rows].
        positions: RoPE positions [batch, rows].
        mask: boolean mask [batch or 1, 1, rows, key rows]; or
        block_tiles: the tiles of one packed sequence, which come to the same in less work.
        cache: object with transformers' `update(keys, values, layer, ...)`, or None.

    Returns:
        Final normed hidden states [batch, rows, hidden].
    """
    if (mask is None) == (block_tiles is None):
        raise ValueError("give either a mask or tiles: without one of them every row would see every other")
    out = model.model(
        input_ids=tokens,
        attention_mask=mask,
        position_ids=positions,
        use_cache=False,
        block_tiles=block_tiles,
        **{_CACHE_KEYWORD: cache},
    )
    return cast(torch.Tensor, out.last_hidden_state)


def _empty(architecture: Architecture) -> Qwen3ForCausalLM:
    config = Qwen3Config(**architecture.to_config(), attn_implementation=ATTENTION)
    # Stock code freezes the pad token's embedding; here it is a supervised token that fills a response's last block.
    config.pad_token_id = None
    model = Qwen3ForCausalLM(config)
    model.config.pad_token_id = architecture.pad_token_id
    return model
