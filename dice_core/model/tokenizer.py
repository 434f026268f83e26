"""Byte-level BPE tokenizer with the special tokens of SDAR, trained on the data or read from a model folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from dice_core.errors import SourceError
from dice_core.files import write_atomic

END_OF_TEXT = "<|endoftext|>"
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
MASK = "<|MASK|>"
SPECIAL_TOKENS = (END_OF_TEXT, IM_START, IM_END, MASK)

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

# Pieces inside which merges may happen: words, one to three digits, runs of punctuation with their line break,
# runs of blanks (so that indentation is one token).
_PIECES = r" ?[A-Za-z_]+|\d{1,3}| ?[^\sA-Za-z_\d]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class CodeTokenizer:
    """A `tokenizers.Tokenizer` with the ids of its special tokens."""

    backend: Tokenizer
    end_of_text_id: int
    im_start_id: int
    im_end_id: int
    mask_id: int

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    @property
    def stop_ids(self) -> tuple[int, int]:
        """Both ids that end a response; never taken from an `eos_token` attribute, which differs between files."""
        return (self.im_end_id, self.end_of_text_id)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; special tokens written in it become their ids."""
        return list(self.backend.encode(text, add_special_tokens=False).ids)

    def encode_plain(self, text: str) -> list[int]:
        """Token ids of `text` taken literally: a special token spelt in it is ordinary text, not that token."""
        pieces: list[int] = []
        for part in _split_specials(text):
            pieces += self.backend.encode(part, add_special_tokens=False).ids
        return pieces

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids; broken UTF-8 becomes the replacement character."""
        return str(self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the small config that lets `PreTrainedTokenizerFast` open the folder."""
        write_atomic(folder / TOKENIZER_FILE, self.backend.to_str(pretty=False))
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": IM_END,
            "pad_token": END_OF_TEXT,
            "mask_token": MASK,
            "clean_up_tokenization_spaces": False,
        }
        write_atomic(folder / TOKENIZER_CONFIG_FILE, json.dumps(config, indent=2, sort_keys=True) + "\n")


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> CodeTokenizer:
    """Train a byte-level BPE tokenizer; the same texts give the same tokenizer.

    Args:
        texts: training texts.
        vocab_size: upper bound on the number of ids, special tokens included; at least 260.

    Raises:
        ValueError: `vocab_size` cannot hold the 256 bytes and the special tokens.
    """
    smallest = 256 + len(SPECIAL_TOKENS)
    if vocab_size < smallest:
        raise ValueError(f"vocab_size must be at least {smallest}, not {vocab_size}")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        show_progress=False,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    # Sorted, so that the order in which rows happen to arrive cannot change a merge.
    backend.train_from_iterator(sorted(texts), trainer=trainer)
    return _wrap(backend, "trained tokenizer")


def load_tokenizer(folder: Path) -> CodeTokenizer:
    """Open tokenizer.json, or vocab.json + merges.txt + added_tokens.json as SDAR and Qwen ship them.

    Raises:
        SourceError: a file is missing or broken, or a special token is not in the vocabulary.
    """
    path = folder / TOKENIZER_FILE
    try:
        if path.exists():
            return _wrap(Tokenizer.from_file(str(path)), str(path))
        return _wrap(_from_qwen_files(folder), str(folder))
    except SourceError:
        raise
    except Exception as error:  # the library raises bare Exception for a malformed file
        raise SourceError(f"{folder}: tokenizer cannot be read: {error}") from None


def _from_qwen_files(folder: Path) -> Tokenizer:
    from transformers import Qwen2Tokenizer  # 3 s to import; only this path needs it

    for name in ("vocab.json", "merges.txt"):
        if not (folder / name).exists():
            raise SourceError(f"{folder} holds neither {TOKENIZER_FILE} nor {name}")
    return cast(Tokenizer, Qwen2Tokenizer.from_pretrained(folder, local_files_only=True).backend_tokenizer)


def _wrap(backend: Tokenizer, where: str) -> CodeTokenizer:
    ids: list[int] = []
    for token in SPECIAL_TOKENS:
        number = backend.token_to_id(token)
        if number is None:
            raise SourceError(f"{where}: special token {token} is missing")
        ids.append(number)
    return CodeTokenizer(backend, *ids)


def _split_specials(text: str) -> list[str]:
    """Cut `text` inside every special token spelt in it, so that no piece contains a whole one."""
    parts = [text]
    for token in SPECIAL_TOKENS:
        cut: list[str] = []
        for part in parts:
            first, *rest = part.split(token)
            cut.append(first)
            for piece in rest:
                cut[-1] += token[:2]
                cut.append(token[2:] + piece)
        parts = cut
    return [part for part in parts if part]
