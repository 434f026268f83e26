"""Encoding, the row budget and packing."""

from __future__ import annotations

import numpy as np
import pytest

from dice_core.model.noise import draw_noise, noise_rng
from dice_core.model.tokenizer import CodeTokenizer, train_tokenizer
from dice_core.train.packing import Document, TextPair, document_rows, encode_pair, lay_out, pack, split_by_budget
from tests.train.conftest import PAIRS


@pytest.fixture(scope="module")
def tokenizer() -> CodeTokenizer:
    return train_tokenizer([pair.response for pair in PAIRS], 280)


def test_a_pair_becomes_prompt_response_end_and_tail(tokenizer: CodeTokenizer) -> None:
    for block_size in (1, 4, 7):
        doc = encode_pair(PAIRS[0], tokenizer, block_size)
        assert doc.tokens.size % block_size == 0
        text = tokenizer.decode(doc.tokens.tolist(), skip_special_tokens=False)
        frame = f"<|im_start|>user\n{PAIRS[0].prompt}<|im_end|>\n<|im_start|>assistant\n"
        body = f"{frame}{PAIRS[0].response}<|im_end|>\n"
        assert text == body + "<|endoftext|>" * (text.count("<|endoftext|>"))
        assert text.count("<|endoftext|>") < block_size
        prompt = doc.tokens[: doc.prompt_tokens].tolist()
        assert tokenizer.decode(prompt, skip_special_tokens=False) == frame
        assert doc.supervised == doc.tokens.size - doc.prompt_tokens == doc.maskable.sum()


def test_rows_of_a_document_are_those_of_its_layout(tokenizer: CodeTokenizer) -> None:
    for copies in (1, 3):
        for pair in PAIRS:
            doc = encode_pair(pair, tokenizer, 4)
            noise = [draw_noise(doc.maskable, 4, "k_uniform", noise_rng(0, 0, "d", c)) for c in range(copies)]
            rows = lay_out([doc], [noise], block_size=4, mask_id=3, pad_id=0, row_multiple=4)
            assert len(rows.ids) == document_rows(doc, 4, copies)
            assert rows.supervised == doc.supervised
            assert rows.clean_tokens == doc.tokens.size
            # k_uniform weighs every supervised token with 1 in expectation; a block always sums to its size.
            assert float(rows.weights.sum()) == pytest.approx(doc.supervised)


def test_only_masked_rows_of_the_response_count(tokenizer: CodeTokenizer) -> None:
    doc = encode_pair(PAIRS[1], tokenizer, 4)
    noise = draw_noise(doc.maskable, 4, "k_uniform", noise_rng(0, 0, "d", 1))
    rows = lay_out([doc], [[noise]], block_size=4, mask_id=3, pad_id=0, row_multiple=64)
    counted = rows.weights > 0
    assert (rows.tokens[counted] == 3).all()
    assert (rows.tokens[~counted] != 3).all()
    assert (rows.targets[counted].numpy() == doc.tokens[rows.ids.pos[counted].numpy()]).all()
    assert rows.ids.pos[counted].min() >= doc.prompt_tokens


def test_long_documents_are_reported_not_cut() -> None:
    docs = [Document(f"d{n}", np.zeros(n, dtype=np.int64), n // 2) for n in (8, 40, 80, 16)]
    kept, dropped = split_by_budget(docs, 4, 1, 64)
    assert [d.document_id for d in kept] == ["d8", "d40", "d16"]
    (gone,) = dropped
    assert (gone.document_id, gone.tokens, gone.rows, gone.row_budget) == ("d80", 80, 120, 64)
    assert all(d.tokens.size == n for d, n in zip(kept, (8, 40, 16), strict=True))


def test_packing_loses_nothing_and_keeps_the_target() -> None:
    rows = np.random.default_rng(0).integers(4, 300, 200).tolist()
    packs = pack(rows, 256)
    assert sorted(i for p in packs for i in p) == list(range(200))
    for members in packs:
        total = sum(rows[i] for i in members)
        assert total <= 256 or len(members) == 1
    assert len(packs) < 1.1 * sum(min(r, 256) for r in rows) / 256 + 1
    assert pack(rows, 256) == packs


def test_special_tokens_in_a_response_are_not_end_marks(tokenizer: CodeTokenizer) -> None:
    doc = encode_pair(TextPair("d", "p", "x = '<|im_end|>'"), tokenizer, 4)
    response = doc.tokens[doc.prompt_tokens :].tolist()
    assert response.count(tokenizer.im_end_id) == 1
