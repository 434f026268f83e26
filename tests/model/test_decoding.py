"""Decoding: cached logits equal training logits (7), the traps of the reference decoders, stopping (13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from transformers import Qwen3ForCausalLM

from dice_core.errors import UsageError
from dice_core.model import backbone
from dice_core.model.decoding import Decoded, DecodingConfig, choose, decode
from dice_core.train.packing import Document
from tests.model.conftest import MASK, STOP, logits, mask_where, rows_of, select

MakeModel = Callable[..., Qwen3ForCausalLM]
MakeDocument = Callable[..., Document]

CONFIG = DecodingConfig(max_new_tokens=12, stop_ids=(), remasking="static")


def naive_decode(model: Qwen3ForCausalLM, prompt: list[int], config: DecodingConfig) -> list[int]:
    """Block diffusion without any cache: every denoising step is a full forward of the training layout."""
    block = 4
    tokens, start, end = list(prompt), len(prompt) // block * block, len(prompt) + config.max_new_tokens
    while start < end:
        tokens += [MASK] * (start + block - len(tokens))
        for step in range(config.denoise_steps):
            hidden_at = [i for i in range(start, start + block) if tokens[i] == MASK]
            if not hidden_at:
                break
            n = torch.arange(len(tokens))
            mask = (n[None] // block <= n[:, None] // block)[None, None]
            with torch.no_grad():
                hidden = backbone.hidden_states(model, torch.tensor([tokens]), n[None], mask=mask)
                scores = model.lm_head(hidden[0]).float()
            scores[:, MASK] = float("-inf")
            p, best = scores.softmax(-1).max(-1)
            count = block // config.denoise_steps + (step < block % config.denoise_steps)
            ranked = sorted(hidden_at, key=lambda i: -float(p[i]))
            chosen = ranked[:count]
            if config.remasking == "dynamic":
                chosen += [i for i in hidden_at if float(p[i]) > config.threshold and i not in chosen]
            for i in chosen:
                tokens[i] = int(best[i])
        start += block
    return tokens[len(prompt) : end]


def prompt_of(length: int, seed: int) -> list[int]:
    return torch.randint(0, STOP, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "separate"])
@pytest.mark.parametrize("remasking", ["static", "dynamic"])
@pytest.mark.parametrize("denoise_steps", [1, 3, 4])
def test_cache_changes_nothing(tiny: MakeModel, fused: bool, remasking: str, denoise_steps: int) -> None:
    """Ragged prompts (shorter than a block, whole blocks, a tail, none) equal decoding without a cache."""
    model = tiny()
    config = replace(CONFIG, fused=fused, remasking=remasking, denoise_steps=denoise_steps, threshold=0.3)
    prompts = [prompt_of(n, n) for n in (3, 8, 13, 0)]
    batch = decode(model, prompts, config)
    for prompt, out in zip(prompts, batch, strict=True):
        assert list(out.tokens) == naive_decode(model, prompt, config)
        assert decode(model, [prompt], config)[0].tokens == out.tokens


def test_cached_logits_equal_training_logits(tiny: MakeModel, document: MakeDocument) -> None:
    """7: log-probabilities recorded while decoding are those of the training layout's noisy rows."""
    model = tiny()
    prompt = prompt_of(6, 1)
    for fused in (True, False):
        out = decode(model, [prompt], replace(CONFIG, fused=fused, denoise_steps=4, max_new_tokens=10))[0]
        doc = Document("d", torch.tensor(prompt + list(out.block_tokens)).numpy(), 6)
        last = max(out.fixed_at)
        for step in range(1, last + 1):
            # What the model saw in forward `step` of each block: later tokens still masked.
            open_ = [6 + i for i, at in enumerate(out.fixed_at) if at >= step]
            rows = rows_of([doc], [[mask_where(doc, open_)]])
            scores = logits(model, rows)[select(rows, 0, 1)].float()
            scores[:, MASK] = float("-inf")
            log_p = scores.log_softmax(-1)
            for i, at in enumerate(out.fixed_at):
                if at == step:
                    seen = log_p[6 + i - 4, out.block_tokens[i]]
                    assert out.log_probs[i] == pytest.approx(float(seen), abs=1e-5)


def test_fused_commit_saves_forwards(tiny: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = tiny(), []
    real = backbone.hidden_states

    def counted(*args: object, **kwargs: object) -> torch.Tensor:
        calls.append(1)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(backbone, "hidden_states", counted)
    counts = {}
    for fused in (True, False):
        calls.clear()
        decode(model, [prompt_of(8, 0)], replace(CONFIG, fused=fused, denoise_steps=2))
        counts[fused] = len(calls)
    assert counts == {True: 1 + 3 * 2, False: 1 + 3 * 2 + 2}


def test_confidence_is_that_of_the_unfiltered_softmax(tiny: MakeModel) -> None:
    """T1: greedy decoding does not make every position certain, so `dynamic` is not one step a block."""
    out = decode(tiny(initializer_range=0.05), [prompt_of(8, 0)], replace(CONFIG, remasking="dynamic", threshold=0.9))
    assert max(out[0].fixed_at) == 4
    assert max(out[0].log_probs) < -0.1


def test_no_more_positions_are_fixed_than_are_open() -> None:
    """T2: one open position and a count of two leave the known tokens alone."""
    confidence = torch.tensor([[0.1, 0.9, 0.8, 0.7]])
    open_ = torch.tensor([[False, False, False, True]])
    for remasking in ("static", "dynamic"):
        assert choose(confidence, open_, torch.tensor([2]), remasking, 0.5).tolist() == open_.tolist()  # type: ignore[arg-type]


def test_a_clamped_block_is_left_as_it_is() -> None:
    closed = torch.zeros(2, 4, dtype=torch.bool)
    for remasking in ("static", "dynamic"):
        chosen = choose(torch.ones(2, 4), closed, torch.tensor([4, 1]), remasking, 0.0)  # type: ignore[arg-type]
        assert not chosen.any()


def test_choice_rules() -> None:
    confidence = torch.tensor([[0.95, 0.2, 0.92, 0.5]])
    open_, one = torch.ones(1, 4, dtype=torch.bool), torch.tensor([1])
    assert choose(confidence, open_, one, "static", 0.9).tolist() == [[True, False, False, False]]
    assert choose(confidence, open_, one, "dynamic", 0.9).tolist() == [[True, False, True, False]]
    assert choose(confidence, open_, one, "dynamic", 0.99).tolist() == [[True, False, False, False]]
    ties = torch.full((1, 4), 0.25)
    assert choose(ties, open_, torch.tensor([2]), "static", 0.9).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 5.0])
def test_mask_is_never_emitted(tiny: MakeModel, temperature: float) -> None:
    """T3: not even by a model that wants nothing else."""
    model = tiny()
    with torch.no_grad():  # every hidden state now points at MASK
        model.model.norm.weight.zero_()
        model.model.norm.weight[0] = 1.0
        model.lm_head.weight[MASK] = 0.0
        model.lm_head.weight[MASK, 0] = 50.0
    for seed in range(3):
        out = decode(model, [prompt_of(5, seed)], replace(CONFIG, temperature=temperature, seed=seed))[0]
        assert MASK not in out.block_tokens


def always(model: Qwen3ForCausalLM, token: int) -> Qwen3ForCausalLM:
    """Make `token` the most likely one everywhere."""
    bias = torch.nn.Linear(model.lm_head.in_features, model.lm_head.out_features).double()
    with torch.no_grad():
        bias.weight.copy_(model.lm_head.weight * 1e-3)
        bias.bias.zero_()
        bias.bias[token] = 20.0
    model.lm_head = bias
    return model


def test_stop_token_ends_the_response_at_once(tiny: MakeModel) -> None:
    model = always(tiny(), STOP)
    out = decode(model, [prompt_of(6, 0), prompt_of(9, 1)], replace(CONFIG, stop_ids=(STOP,), remasking="dynamic"))
    for result in out:
        assert result == replace(result, tokens=(), stopped=True, steps=1)


def test_stop_token_in_the_prompt_does_not_stop(tiny: MakeModel) -> None:
    model = always(tiny(), 7)
    out = decode(model, [[1, STOP, 2, 3, 4, STOP]], replace(CONFIG, stop_ids=(STOP,)))[0]
    assert out.tokens == (7,) * 12
    assert not out.stopped


def test_response_ends_at_max_new_tokens(tiny: MakeModel) -> None:
    model = tiny()
    for limit in (1, 5, 6, 7):
        out = decode(model, [prompt_of(6, 0)], replace(CONFIG, max_new_tokens=limit))[0]
        assert len(out.tokens) == limit
        assert (6 + len(out.block_tokens)) % 4 == 0


def test_sampling_is_seeded_and_free_of_the_batch(tiny: MakeModel) -> None:
    model, prompts = tiny(initializer_range=0.05), [prompt_of(5, 0), prompt_of(10, 1), prompt_of(7, 2)]
    hot = replace(CONFIG, temperature=1.0, seed=3)

    def tokens(results: list[Decoded]) -> list[tuple[int, ...]]:
        return [result.tokens for result in results]

    together = tokens(decode(model, prompts, hot))
    apart = [decode(model, [prompt], hot, first_stream=i)[0].tokens for i, prompt in enumerate(prompts)]
    assert together == apart
    assert tokens(decode(model, prompts, replace(hot, seed=4))) != together
    assert len({decode(model, [prompts[0]], hot, first_stream=i)[0].tokens for i in range(8)}) > 1


def test_sampling_follows_the_distribution(tiny: MakeModel) -> None:
    """Gumbel-argmax draws from softmax(logits / T)."""
    model = tiny(vocab_size=8, mask_token_id=7, eos_token_id=6, pad_token_id=6, block_size=1)
    model.lm_head.weight.data *= 0.3
    prompt = [1, 2, 3]
    with torch.no_grad():
        n = torch.arange(4)
        causal = torch.tril(torch.ones(4, 4, dtype=torch.bool))[None, None]
        hidden = backbone.hidden_states(model, torch.tensor([[*prompt, 7]]), n[None], mask=causal)
        expected = (model.lm_head(hidden[0, -1])[:7] / 0.7).softmax(0)
    config = DecodingConfig(max_new_tokens=1, stop_ids=(), denoise_steps=1, temperature=0.7)
    drawn = torch.tensor([out.tokens[0] for out in decode(model, [prompt] * 2000, config)])
    share = torch.bincount(drawn, minlength=7) / 2000
    assert (share - expected).abs().max() < 0.04


def test_requests_that_cannot_be_met_are_refused(tiny: MakeModel) -> None:
    model = tiny()
    with pytest.raises(UsageError, match="512"):
        decode(model, [prompt_of(501, 0)], CONFIG)
    with pytest.raises(UsageError, match="block size 4"):
        decode(model, [[1]], replace(CONFIG, denoise_steps=5))
    for wrong in ({"max_new_tokens": 0}, {"denoise_steps": 0}, {"remasking": "random"}, {"temperature": -1.0}):
        with pytest.raises(UsageError):
            replace(CONFIG, **wrong)  # type: ignore[arg-type]
    assert decode(model, [], CONFIG) == []
