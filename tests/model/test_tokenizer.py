"""Tokenizer: round trips, determinism, files, and SDAR's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from dice_core.errors import SourceError
from dice_core.model.tokenizer import SPECIAL_TOKENS, CodeTokenizer, load_tokenizer, train_tokenizer

TEXTS = [
    "def forward(self, x):\n    return torch.relu(x) * 0.5  # naïve\n",
    "__global__ void kernel(const float* x, float* out, int64_t n) {\n\tint i = blockIdx.x;\n}\n",
    "for (int row = 0; row < rows; ++row) {\n        sum += input[row * columns + column];\n}\n",
] * 3


@pytest.fixture(scope="module")
def tokenizer() -> CodeTokenizer:
    return train_tokenizer(TEXTS, 400)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\n\n",
        "\t x\r\n",
        "a  b   c",
        "int  x=1;//π≈3.14 🚀 日本語 é",
        "x" * 1000,
        "12345 0x7F 1e-6f",
        "\x00\x1f",
        *TEXTS[:3],
    ],
)
def test_round_trip(tokenizer: CodeTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode_plain(text)) == text


def test_training_compresses_and_keeps_the_bound(tokenizer: CodeTokenizer) -> None:
    assert tokenizer.vocab_size <= 400
    assert len(tokenizer.encode(TEXTS[0])) < len(TEXTS[0]) / 1.5


def test_special_tokens_come_first_and_decode_to_nothing(tokenizer: CodeTokenizer) -> None:
    ids = [tokenizer.end_of_text_id, tokenizer.im_start_id, tokenizer.im_end_id, tokenizer.mask_id]
    assert ids == [0, 1, 2, 3]
    assert tokenizer.encode("".join(SPECIAL_TOKENS)) == ids
    assert tokenizer.decode(ids) == ""
    assert tokenizer.stop_ids == (tokenizer.im_end_id, tokenizer.end_of_text_id)


def test_training_is_deterministic_and_free_of_order(tokenizer: CodeTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "a")
    train_tokenizer(list(reversed(TEXTS)), 400).save(tmp_path / "b")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_saved_folder_opens_here_and_in_transformers(tokenizer: CodeTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    ids = tokenizer.encode(TEXTS[1])
    assert load_tokenizer(tmp_path).encode(TEXTS[1]) == ids
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert theirs.encode(TEXTS[1], add_special_tokens=False) == ids
    assert theirs.decode(ids) == TEXTS[1]
    assert (theirs.mask_token_id, theirs.eos_token_id, theirs.pad_token_id) == (3, 2, 0)


def test_vocabulary_must_hold_all_bytes() -> None:
    with pytest.raises(ValueError, match="at least 260"):
        train_tokenizer(TEXTS, 100)


@pytest.mark.parametrize("content", [None, "", "{", '{"model": 3}'])
def test_broken_files_are_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(SourceError, match=str(tmp_path)):
        load_tokenizer(tmp_path)


def test_missing_special_token_is_named(tokenizer: CodeTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace("<|MASK|>", "<|OTHER|>"))
    with pytest.raises(SourceError, match=r"<\|MASK\|>"):
        load_tokenizer(tmp_path)


def test_sdar_tokenizer_has_the_published_ids(real_data: Path) -> None:
    tokenizer = load_tokenizer(real_data / "sdar_tokenizer")
    assert (tokenizer.mask_id, tokenizer.im_end_id, tokenizer.end_of_text_id) == (151669, 151645, 151643)
    assert tokenizer.vocab_size == 151670
    text = "__global__ void k(float* x) { x[threadIdx.x] *= 2.0f; }  // é 日本\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text
