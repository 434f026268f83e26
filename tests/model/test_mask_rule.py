"""The mask rule and the layout: invariants 1-6 and 9 of the specification, against naive loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import Qwen3ForCausalLM

from dice_core.model import backbone
from dice_core.model.attention import RowIds, allow, dense_mask, tiles
from dice_core.model.noise import Noise, draw_noise, noise_rng
from dice_core.train.packing import Document, lay_out
from dice_core.train.sft import sequence_loss
from tests.model.conftest import MASK, PAD, logits, mask_where, rows_of, select

MakeModel = Callable[..., Qwen3ForCausalLM]
MakeDocument = Callable[..., Document]


def may_see(q: tuple[int, int, int], k: tuple[int, int, int]) -> bool:
    """The rule in words, for one pair of (doc, blk, copy)."""
    if q[0] != k[0]:
        return False
    if q[2] == 0:  # a clean row: clean rows up to its own block
        return k[2] == 0 and k[1] <= q[1]
    if k[2] == 0:  # a noisy row: clean rows of strictly earlier blocks
        return k[1] < q[1]
    return k[2] == q[2] and k[1] == q[1]


def test_rule_equals_a_naive_loop(document: MakeDocument) -> None:
    docs = [document(5, 11, 1), document(0, 8, 2), document(9, 7, 3)]
    noises = [[mask_where(d, [d.prompt_tokens]), mask_where(d, [d.prompt_tokens + 1])] for d in docs]
    rows = rows_of(docs, noises, row_multiple=128)
    triples = list(zip(rows.ids.doc.tolist(), rows.ids.blk.tolist(), rows.ids.copy.tolist(), strict=True))
    naive = torch.tensor([[may_see(q, k) for k in triples] for q in triples])
    assert torch.equal(allow(rows.ids, rows.ids), naive)


def test_padding_rows_see_their_own_block_and_nobody_sees_them(document: MakeDocument) -> None:
    rows = rows_of([document(3, 5)], [[mask_where(document(3, 5), [4])]], row_multiple=64)
    mask = dense_mask(rows.ids)[0, 0]
    padding = rows.ids.doc < 0
    assert padding.any()
    assert mask[padding].sum(1).eq(4).all()
    assert not mask[~padding][:, padding].any()


@pytest.mark.parametrize("tile_rows", [4, 16, 40, 1024])
def test_tiles_come_to_the_same_as_the_dense_mask(tiny: MakeModel, document: MakeDocument, tile_rows: int) -> None:
    model = tiny()
    docs = [document(5, 11, 1), document(0, 8, 2), document(18, 22, 3)]
    rows = rows_of(
        docs,
        [[draw_noise(d.maskable, 4, "k_uniform", noise_rng(0, 0, d.document_id, 1))] for d in docs],
        row_multiple=128,
    )
    cut = tiles(rows.ids, 4, torch.float64, tile_rows)
    assert sum(tile.keys.numel() for tile in cut) < len(cut) * len(rows.ids) or tile_rows == 1024
    with torch.no_grad():
        hidden = backbone.hidden_states(model, rows.tokens[None], rows.ids.pos[None], block_tiles=cut)
        assert torch.allclose(model.lm_head(hidden[0]), logits(model, rows), atol=1e-12)


def test_hidden_states_demand_a_mask_or_tiles(tiny: MakeModel) -> None:
    with pytest.raises(ValueError, match="mask or tiles"):
        backbone.hidden_states(tiny(), torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.long))


def test_layout_equals_the_doubled_layout_of_sdar(tiny: MakeModel, document: MakeDocument) -> None:
    """1: [noisy n | clean n] and [prompt | response | noisy response blocks] agree on the noisy response rows."""
    model, doc = tiny(), document(6, 14)
    noise = mask_where(doc, [7, 8, 9, 13, 16, 19])
    ours = rows_of([doc], [[noise]])
    n = doc.tokens.size
    pos = torch.arange(n).repeat(2)
    copy = torch.cat([torch.ones(n), torch.zeros(n)]).long()
    doubled = RowIds(doc=torch.zeros(2 * n).long(), pos=pos, blk=pos // 4, copy=copy)
    clean = torch.from_numpy(doc.tokens)
    tokens = torch.cat([torch.where(torch.from_numpy(noise.masked), MASK, clean), clean])
    with torch.no_grad():
        hidden = backbone.hidden_states(model, tokens[None], pos[None], mask=dense_mask(doubled))
        theirs = model.lm_head(hidden[0])[4:n]  # the noisy rows from the boundary block on
    assert torch.allclose(logits(model, ours)[select(ours, 0, 1)], theirs, atol=1e-12)


def test_later_tokens_never_reach_earlier_blocks(tiny: MakeModel, document: MakeDocument) -> None:
    """2: changing block b moves no row of earlier blocks, and moves rows of later ones."""
    model, doc = tiny(), document(4, 16)
    noise = mask_where(doc, [5, 9, 13, 17])
    before = rows_of([doc], [[noise]])
    changed = doc.tokens.copy()
    changed[8:12] = (changed[8:12] + 7) % 50
    after = rows_of([Document("doc0", changed, 4)], [[noise]])
    moved = (logits(model, before) - logits(model, after)).abs().amax(1)
    assert moved[before.ids.blk < 2].max() == 0.0
    assert moved[(before.ids.blk > 2)].min() > 1e-6


def test_clean_copy_of_a_block_does_not_leak_into_its_noisy_copy(tiny: MakeModel, document: MakeDocument) -> None:
    """3: the leak test."""
    model, doc = tiny(), document(4, 16)
    rows = rows_of([doc], [[mask_where(doc, list(range(4, 20)))]])
    before = logits(model, rows)
    own = select(rows, 0, 0) & (rows.ids.blk == 2)
    rows.tokens[own] = (rows.tokens[own] + 7) % 50
    moved = (logits(model, rows) - before).abs().amax(1)
    assert moved[select(rows, 0, 1) & (rows.ids.blk == 2)].max() == 0.0
    assert moved[select(rows, 0, 1) & (rows.ids.blk == 3)].min() > 1e-6


def test_packed_documents_and_copies_equal_each_alone(tiny: MakeModel, document: MakeDocument) -> None:
    """4: packing, its order and the number of copies change no logit."""
    model = tiny()
    docs = [document(5, 11, 1), document(2, 6, 2), document(9, 7, 3)]
    noises = [
        [mask_where(d, [d.prompt_tokens, d.prompt_tokens + 3]), mask_where(d, [d.prompt_tokens + 2])] for d in docs
    ]
    alone: dict[tuple[int, int], torch.Tensor] = {}
    for i, (doc, copies) in enumerate(zip(docs, noises, strict=True)):
        for c, noise in enumerate(copies):
            rows = rows_of([doc], [[noise]])
            alone[i, c] = logits(model, rows)[select(rows, 0, 1)]
    for order in ([0, 1, 2], [2, 0, 1]):
        rows = rows_of([docs[i] for i in order], [noises[i] for i in order], row_multiple=128)
        out = logits(model, rows)
        for place, i in enumerate(order):
            for c in range(2):
                assert torch.allclose(out[select(rows, place, c + 1)], alone[i, c], atol=1e-12)


def test_block_size_one_is_the_autoregressive_model(tiny: MakeModel, document: MakeDocument) -> None:
    """5: with every token masked, row i is a causal forward over [x_<i, MASK]; the loss is the exact NLL."""
    model, doc = tiny(block_size=1), document(3, 6)
    noise = draw_noise(doc.maskable, 1, "k_uniform", noise_rng(0, 0, "doc", 1))
    assert noise.masked.sum() == 6
    rows = rows_of([doc], [[noise]], block_size=1)
    noisy = logits(model, rows)[select(rows, 0, 1)]
    nll = 0.0
    for i in range(3, 9):
        prefix = torch.tensor([*doc.tokens[:i].tolist(), MASK])
        n = prefix.numel()
        causal = torch.tril(torch.ones(n, n, dtype=torch.bool))[None, None]
        with torch.no_grad():
            hidden = backbone.hidden_states(model, prefix[None], torch.arange(n)[None], mask=causal)
            expected = model.lm_head(hidden[0, -1])
        assert torch.allclose(noisy[i - 3], expected, atol=1e-12)
        nll -= float(torch.log_softmax(expected, 0)[doc.tokens[i]])
    assert float(sequence_loss(model, rows).detach()) == pytest.approx(nll, rel=1e-12)


def test_one_block_without_prompt_is_a_bidirectional_masked_model(tiny: MakeModel, document: MakeDocument) -> None:
    """6: LLaDA."""
    model, doc = tiny(block_size=8), document(0, 8)
    rows = rows_of([doc], [[mask_where(doc, [1, 2, 6])]], block_size=8)
    noisy = select(rows, 0, 1)
    full = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    with torch.no_grad():
        hidden = backbone.hidden_states(model, rows.tokens[noisy][None], torch.arange(8)[None], mask=full)
        assert torch.allclose(logits(model, rows)[noisy], model.lm_head(hidden[0]), atol=1e-12)


def test_gradients_flow_through_earlier_clean_blocks_only(tiny: MakeModel, document: MakeDocument) -> None:
    """9: the loss of one noisy block reaches the clean rows of earlier blocks and no others."""
    model, doc = tiny(), document(4, 16)
    rows = rows_of([doc], [[mask_where(doc, [13])]])
    embedded = model.model.embed_tokens(rows.tokens[None]).detach().requires_grad_()
    out = model.model(
        inputs_embeds=embedded, attention_mask=dense_mask(rows.ids), position_ids=rows.ids.pos[None], use_cache=False
    )
    chosen = rows.weights > 0
    loss = torch.nn.functional.cross_entropy(model.lm_head(out.last_hidden_state[0][chosen]), rows.targets[chosen])
    loss.backward()
    assert embedded.grad is not None
    size = embedded.grad[0].abs().amax(1)
    clean = select(rows, 0, 0)
    assert size[clean & (rows.ids.blk < 3)].min() > 0.0
    assert size[clean & (rows.ids.blk >= 3)].max() == 0.0


def test_boundary_block_shows_the_prompts_tail(document: MakeDocument) -> None:
    doc = document(6, 6)
    rows = rows_of([doc], [[mask_where(doc, list(range(6, 12)))]])
    noisy = select(rows, 0, 1)
    assert rows.ids.pos[noisy].tolist() == list(range(4, 12))
    assert rows.tokens[noisy].tolist() == [*doc.tokens[4:6].tolist(), *[MASK] * 6]
    assert rows.weights[noisy].tolist() == [0.0, 0.0, *[1.0] * 6]


def test_padding_and_microbatches_leave_the_loss_alone(tiny: MakeModel, document: MakeDocument) -> None:
    """11: the summed loss of packed documents is the sum of each alone, with any amount of padding."""
    model = tiny()
    docs = [document(5, 11, 1), document(2, 6, 2)]
    noises = [[draw_noise(d.maskable, 4, "sdar", noise_rng(3, 0, d.document_id, 1))] for d in docs]
    alone = sum(float(sequence_loss(model, rows_of([d], [n])).detach()) for d, n in zip(docs, noises, strict=True))
    for multiple in (4, 64, 256):
        packed = float(sequence_loss(model, rows_of(docs, noises, row_multiple=multiple)).detach())
        assert packed == pytest.approx(alone, rel=1e-12)


def test_initial_loss_is_that_of_a_uniform_guess(document: MakeDocument) -> None:
    """Anything far below ln V at step 0 is a leak."""
    from tests.model.conftest import architecture

    model = backbone.build(architecture(vocab_size=512, initializer_range=0.02), seed=3)
    doc = document(40, 400)
    noise = draw_noise(doc.maskable, 4, "k_uniform", noise_rng(0, 0, "doc", 1))
    loss = float(sequence_loss(model, rows_of([doc], [[noise]])).detach()) / doc.supervised
    assert loss == pytest.approx(math.log(512) + 0.0004 * 32 / 2, rel=0.01)


def test_row_multiple_must_hold_whole_blocks(document: MakeDocument) -> None:
    doc = document(4, 4)
    noise = Noise(np.zeros(8, dtype=bool), np.zeros(8))
    with pytest.raises(ValueError, match="row_multiple 6"):
        lay_out([doc], [[noise]], block_size=4, mask_id=MASK, pad_id=PAD, row_multiple=6)
