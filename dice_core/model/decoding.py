"""Block-diffusion decoding with a block KV cache, batched over prompts of different lengths.

Blocks are denoised left to right. The rows of the open block see the cache and each other; their own keys and values
are scratch until every token is final. Then the block is committed by a forward over its final tokens, which by
default also denoises the next block (rows of block b see cache and themselves, rows of b+1 also see b): the same
logits as two forwards (SDAR, arXiv:2510.06303, describes the unfused form).

Three faults of the reference decoders are avoided on purpose: confidence is the probability under the unfiltered
softmax, not one after top-k; no more positions are fixed than are masked; MASK itself is never sampled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from transformers import Qwen3ForCausalLM

from dice_core.errors import UsageError
from dice_core.model import backbone
from dice_core.model.prompts import chat_prompt_ids
from dice_core.model.tokenizer import CodeTokenizer

Remasking = Literal["static", "dynamic"]


@dataclass(frozen=True)
class DecodingConfig:
    """How to decode.

    Attributes:
        max_new_tokens: most tokens of a response.
        denoise_steps: forwards that a block may take, 1 to the block size.
        remasking: `static` fixes the same number of most confident tokens in each step; `dynamic` fixes all whose
            confidence exceeds `threshold`, and at least as many as `static`.
        threshold: of `dynamic`.
        temperature: 0 takes the most likely token.
        seed: of sampling; each prompt has its own stream, so its text does not depend on its batch.
        stop_ids: ids that end a response.
        fused: commit a block in the same forward that first denoises the next one.
    """

    max_new_tokens: int
    stop_ids: tuple[int, ...]
    denoise_steps: int = 4
    remasking: Remasking = "dynamic"
    threshold: float = 0.9
    temperature: float = 0.0
    seed: int = 0
    fused: bool = True

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise UsageError(f"max_new_tokens must be at least 1, not {self.max_new_tokens}")
        if self.denoise_steps < 1:
            raise UsageError(f"denoise_steps must be at least 1, not {self.denoise_steps}")
        if self.remasking not in ("static", "dynamic"):
            raise UsageError(f"unknown remasking {self.remasking!r}; known: static, dynamic")
        if not self.temperature >= 0.0:
            raise UsageError(f"temperature must not be negative, but is {self.temperature}")


@dataclass(frozen=True)
class Decoded:
    """One decoded response.

    Attributes:
        tokens: the response, without its stop token.
        stopped: True when a stop token ended it, False when `max_new_tokens` did.
        block_tokens: everything behind the prompt in the blocks that were worked on, also behind the stop token,
            where a token that was never fixed is MASK.
        fixed_at: for each of `block_tokens` the forward of its block in which it was fixed, 1 for the first; 0 = never.
        log_probs: for each of `block_tokens` its log-probability (temperature 1) when it was fixed; 0.0 if never.
        steps: denoising forwards that this response took part in.
    """

    tokens: tuple[int, ...]
    stopped: bool
    block_tokens: tuple[int, ...]
    fixed_at: tuple[int, ...]
    log_probs: tuple[float, ...]
    steps: int


@dataclass(frozen=True)
class Generation:
    """A decoded response and its text."""

    text: str
    decoded: Decoded


def generate(
    model: Qwen3ForCausalLM,
    tokenizer: CodeTokenizer,
    prompts: Sequence[str],
    config: DecodingConfig,
    batch_size: int = 16,
) -> list[Generation]:
    """Answer user turns. Prompts are decoded in batches in the given order.

    Raises:
        UsageError: a prompt with `max_new_tokens` exceeds the model's context.
    """
    ids = [chat_prompt_ids(tokenizer, prompt) for prompt in prompts]
    out: list[Generation] = []
    for begin in range(0, len(ids), batch_size):
        for decoded in decode(model, ids[begin : begin + batch_size], config, first_stream=begin):
            out.append(Generation(tokenizer.decode(decoded.tokens), decoded))
    return out


@torch.inference_mode()
def decode(
    model: Qwen3ForCausalLM, prompts: Sequence[Sequence[int]], config: DecodingConfig, first_stream: int = 0
) -> list[Decoded]:
    """Decode one batch of prompts given as token ids, of any lengths.

    Args:
        model: the network, on the device where decoding happens.
        prompts: token ids of each prompt; block 0 starts at its first token.
        config: how to decode.
        first_stream: number of the first prompt's random stream.

    Returns:
        One response for each prompt, in order.

    Raises:
        UsageError: a prompt with `max_new_tokens` exceeds the model's context, or more denoising steps are asked for
            than a block has tokens.
    """
    if not prompts:
        return []
    block_size = backbone.architecture_of(model).block_size
    if config.denoise_steps > block_size:
        raise UsageError(f"denoise_steps {config.denoise_steps} exceeds the block size {block_size}")
    context = model.config.max_position_embeddings
    longest = max(len(prompt) for prompt in prompts) + config.max_new_tokens
    if longest > context:
        raise UsageError(f"prompt and max_new_tokens need {longest} positions, the model has {context}")
    batch = _Batch(model, prompts, config, first_stream)
    batch.prefill()
    while batch.active:
        batch.step()
    return [batch.finished[number] for number in range(len(prompts))]


def choose(
    confidence: torch.Tensor,
    open_: torch.Tensor,
    count: torch.Tensor,
    remasking: Remasking,
    threshold: float,
) -> torch.Tensor:
    """Which open positions of each block to fix now.

    Args:
        confidence: [batch, block] probability of each position's candidate.
        open_: [batch, block] True where the token is still masked.
        count: [batch] how many to fix at least; clamped to the open ones.
        remasking: `static` or `dynamic`.
        threshold: of `dynamic`.

    Returns:
        Boolean [batch, block], a subset of `open_`; on ties the leftmost comes first.
    """
    scores = confidence.masked_fill(~open_, float("-inf"))
    order = scores.argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1)
    chosen = rank < count[:, None]
    if remasking == "dynamic":
        chosen = chosen | (scores > threshold)
    return chosen & open_


def _stream_seed(seed: int, number: int) -> int:
    """Seed of one prompt's stream; hashed, since torch's CPU generator uses the low 32 bits only."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{number}".encode()).digest()[:4], "big")


class _BlockCache:
    """Keys and values by position, written in place; positions not yet committed are overwritten.

    The first `block_size` slots take the rows of sequences that have no block to commit. Duck type of transformers'
    cache: attention layers only call `update`.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.slots = torch.empty(0, dtype=torch.long)  # [batch, rows] where the next forward writes
        self.length = 0  # slots that the next forward may read

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store one layer's rows [batch, heads, rows, head_dim]; returns all slots in use."""
        if layer == len(self.keys):
            shape = (key.shape[0], key.shape[1], self.capacity, key.shape[3])
            self.keys.append(key.new_zeros(shape))
            self.values.append(value.new_zeros(shape))
        rows = torch.arange(key.shape[0], device=key.device)[:, None]
        self.keys[layer][rows, :, self.slots] = key.transpose(1, 2)
        self.values[layer][rows, :, self.slots] = value.transpose(1, 2)
        return self.keys[layer][:, :, : self.length], self.values[layer][:, :, : self.length]

    def keep(self, rows: torch.Tensor) -> None:
        """Forget all sequences but `rows`."""
        self.keys = [tensor.index_select(0, rows) for tensor in self.keys]
        self.values = [tensor.index_select(0, rows) for tensor in self.values]


class _Batch:
    """Sequences decoded in lockstep; finished ones leave the batch."""

    def __init__(
        self,
        model: Qwen3ForCausalLM,
        prompts: Sequence[Sequence[int]],
        config: DecodingConfig,
        first_stream: int,
    ) -> None:
        self.model, self.config, self.device = model, config, model.device
        architecture = backbone.architecture_of(model)
        self.block, self.mask_id = architecture.block_size, architecture.mask_token_id
        lengths = [len(prompt) for prompt in prompts]
        width = -(-(max(lengths) + config.max_new_tokens) // self.block) * self.block
        self.active = list(range(len(prompts)))
        self.finished: dict[int, Decoded] = {}
        self.tokens = torch.full((len(prompts), width), self.mask_id, dtype=torch.long)
        self.open = torch.ones_like(self.tokens, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            self.tokens[row, : len(prompt)] = torch.as_tensor(list(prompt), dtype=torch.long)
            self.open[row, : len(prompt)] = False
        self.tokens, self.open = self.tokens.to(self.device), self.open.to(self.device)
        self.fixed_at = torch.zeros_like(self.tokens)
        self.log_probs = torch.zeros(self.tokens.shape, dtype=torch.float32, device=self.device)
        self.prompt = torch.tensor(lengths, device=self.device)
        self.start = self.prompt // self.block * self.block
        self.pending = torch.zeros_like(self.start, dtype=torch.bool)  # the block before `start` is not committed
        self.block_step = torch.zeros_like(self.start)
        self.steps = torch.zeros_like(self.start)
        self.stop_ids = torch.tensor(config.stop_ids, dtype=torch.long, device=self.device)
        self.streams = [
            torch.Generator(self.device).manual_seed(_stream_seed(config.seed, first_stream + number))
            for number in range(len(prompts))
        ]
        self.cache = _BlockCache(width + self.block)

    def prefill(self) -> None:
        """Cache the prompts' whole blocks. Rows behind a shorter prompt's last block are overwritten later."""
        rows = int(self.start.max())
        if rows:
            self._forward(torch.arange(rows, device=self.device).expand(len(self.active), rows))

    def step(self) -> None:
        """One denoising forward of every sequence, and what follows from it."""
        within = torch.arange(self.block, device=self.device)
        current = self.start[:, None] + within
        before = current - self.block
        commit = bool(self.pending.any())
        if commit and not self.config.fused:
            self._forward(before)
        both = torch.cat([before, current], dim=1) if commit and self.config.fused else current
        hidden = self._forward(both)[:, -self.block :]
        self.pending[:] = False
        open_ = self.open.gather(1, current)
        log_p, candidates = self._candidates(hidden, open_)
        base, extra = divmod(self.block, self.config.denoise_steps)
        count = base + (self.block_step < extra).long()
        fix = choose(log_p.exp(), open_, count, self.config.remasking, self.config.threshold)
        self.block_step += 1
        self.steps += 1
        self._put(self.tokens, current, fix, candidates)
        self._put(self.fixed_at, current, fix, self.block_step[:, None].expand_as(current))
        self._put(self.log_probs, current, fix, log_p)
        self._put(self.open, current, fix, torch.zeros_like(fix))
        self._advance(current)

    def _forward(self, positions: torch.Tensor) -> torch.Tensor:
        """Run rows at `positions` [batch, rows]; negative ones (no block before the first) go to the spare slots."""
        real = positions >= 0
        clamped = positions.clamp(min=0)
        self.cache.slots = positions + self.block
        self.cache.length = int(positions.max()) + 1 + self.block
        slot = torch.arange(self.cache.length, device=self.device)
        end = (torch.div(positions, self.block, rounding_mode="floor") + 2) * self.block
        first = torch.where(real, self.block, 0)
        mask = (slot >= first[..., None]) & (slot < end[..., None])
        tokens = self.tokens.gather(1, clamped)
        return backbone.hidden_states(self.model, tokens, clamped, mask=mask[:, None], cache=self.cache)

    def _candidates(self, hidden: torch.Tensor, open_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Candidate token of every open position and its log-probability under the unfiltered softmax."""
        logits = self.model.lm_head(hidden[open_]).float()
        logits[:, self.mask_id] = float("-inf")
        scores = logits
        if self.config.temperature > 0.0:
            shape = (self.block, logits.shape[1])
            noise = torch.stack(
                [torch.rand(shape, generator=self.streams[number], device=self.device) for number in self.active]
            )
            # Gumbel-argmax: a draw from softmax(logits / T) without materialising the distribution.
            gumbel = -torch.log(-torch.log(noise[open_].clamp_(1e-20, 1.0 - 1e-7)))
            scores = logits / self.config.temperature + gumbel
        best = scores.argmax(dim=1)
        picked = torch.log_softmax(logits, dim=1).gather(1, best[:, None])[:, 0]
        candidates = torch.zeros(open_.shape, dtype=torch.long, device=self.device)
        log_p = torch.zeros(open_.shape, dtype=torch.float32, device=self.device)
        candidates[open_], log_p[open_] = best, picked
        return log_p, candidates

    @staticmethod
    def _put(target: torch.Tensor, where: torch.Tensor, chosen: torch.Tensor, values: torch.Tensor) -> None:
        target.scatter_(1, where, torch.where(chosen, values, target.gather(1, where)))

    def _advance(self, current: torch.Tensor) -> None:
        """Retire sequences that met a stop token or their limit; move those with a full block to the next."""
        open_, tokens = self.open.gather(1, current), self.tokens.gather(1, current)
        settled = (~open_).long().cumprod(dim=1).bool()  # fixed, and everything before it in the block as well
        limit = self.prompt + self.config.max_new_tokens
        answer = (current >= self.prompt[:, None]) & (current < limit[:, None])
        stopped = (settled & answer & torch.isin(tokens, self.stop_ids)).any(dim=1)
        full = ~open_.any(dim=1)
        self.start = self.start + full.long() * self.block
        self.block_step.masked_fill_(full, 0)
        self.pending = full
        done = stopped | (self.start >= limit)
        if bool(done.any()):
            for row in torch.nonzero(done)[:, 0].tolist():
                end = int(current[row, -1]) + 1
                self.finished[self.active[row]] = self._result(row, end, bool(stopped[row]))
            self._keep(torch.nonzero(~done)[:, 0])

    def _result(self, row: int, end: int, stopped: bool) -> Decoded:
        begin = int(self.prompt[row])
        tokens = self.tokens[row, begin:end].tolist()
        answer = tokens[: self.config.max_new_tokens]
        if stopped:
            answer = answer[: next(i for i, token in enumerate(answer) if token in self.config.stop_ids)]
        return Decoded(
            tokens=tuple(answer),
            stopped=stopped,
            block_tokens=tuple(tokens),
            fixed_at=tuple(self.fixed_at[row, begin:end].tolist()),
            log_probs=tuple(self.log_probs[row, begin:end].tolist()),
            steps=int(self.steps[row]),
        )

    def _keep(self, rows: torch.Tensor) -> None:
        self.active = [self.active[row] for row in rows.tolist()]
        for name in (
            "tokens",
            "open",
            "fixed_at",
            "log_probs",
            "prompt",
            "start",
            "pending",
            "block_step",
            "steps",
        ):
            setattr(self, name, getattr(self, name).index_select(0, rows))
        self.cache.keep(rows)
