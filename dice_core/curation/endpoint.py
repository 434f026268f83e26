"""A chat endpoint in OpenAI's form, asked with patience: retries, a rate limit, and what it has cost.

Only `POST <base>/chat/completions` is used, with `model`, `messages`, `temperature` and `max_tokens`, which every
compatible server knows. The key goes into one header and nowhere else: not into messages, errors, caches or records.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard
from urllib.parse import urlsplit

import httpx

from dice_core.errors import EndpointError, UsageError

#: Statuses that another try may change.
_TRY_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 60.0
#: Code has about this many characters a token; used before asking, and where a server does not count.
_CHARACTERS_PER_TOKEN = 3


@dataclass(frozen=True)
class EndpointConfig:
    """Where and how to ask. Prices are per million tokens, in the currency of the cost budget."""

    base_url: str  #: up to and with the version, such as `https://host/v1`
    model: str
    api_key: str = field(default="", repr=False)
    temperature: float = 0.7
    max_tokens: int = 4096  #: of one answer
    timeout_s: float = 120.0  #: of one request
    attempts: int = 5  #: tries of one request
    requests_per_minute: int = 30  #: 0 means no limit
    price_in: float = 0.0
    price_out: float = 0.0

    def check(self) -> None:
        """Refuse what cannot work.

        Raises:
            UsageError: the address is no http(s) URL or holds a password, or there is no model name.
        """
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("generator_url must be an address like https://host/v1")
        if parts.username or parts.password or parts.query:
            raise UsageError("generator_url must hold no user, password or query; the key goes into DICE_GENERATOR_KEY")
        if not self.model:
            raise UsageError("generator_model must name the endpoint's model")
        if self.max_tokens < 1 or self.attempts < 1 or self.timeout_s <= 0 or self.requests_per_minute < 0:
            raise UsageError("generator_max_tokens and generator_timeout_s must be above 0, the rate 0 or more")

    @property
    def sampling(self) -> dict[str, str]:
        """What an answer depends on besides the messages, as text."""
        host = urlsplit(self.base_url).netloc
        return {"host": host, "model": self.model, "temperature": f"{self.temperature:g}",
                "max_tokens": str(self.max_tokens)}


@dataclass(frozen=True)
class Completion:
    """One answer. `text` is empty when the endpoint gave none."""

    text: str
    finish_reason: str
    tokens_in: int
    tokens_out: int
    counted: bool  #: whether the endpoint counted the tokens; else they are estimated from the characters


class Endpoint:
    """Asks one endpoint, one request at a time. Use as a context manager."""

    def __init__(
        self, config: EndpointConfig, *, sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        config.check()
        self.config = config
        self._sleep, self._clock = sleep, clock
        self._next_at = clock()
        headers = {"Authorization": f"Bearer {config.api_key}"} if config.api_key else {}
        self._client = httpx.Client(headers=headers, timeout=config.timeout_s)
        self._random = random.Random()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def complete(self, system: str, user: str) -> Completion:
        """Ask once, trying again after 429, server errors, broken connections, timeouts and answers that are no JSON.

        Waits as `Retry-After` says, else 1, 2, 4 ... seconds, give or take a quarter, at most a minute.

        Raises:
            UsageError: the endpoint refuses the key, the model or the request itself.
            EndpointError: it gave no usable answer in `attempts` tries.
        """
        body = {
            "model": self.config.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "temperature": self.config.temperature,
            "max_tokens": self.config.max_tokens,
        }
        problem, told = "", None
        for attempt in range(self.config.attempts):
            if attempt:
                self._sleep(self._wait(attempt, told))
            told = None
            self._keep_rate()
            try:
                response = self._client.post(f"{self.config.base_url.rstrip('/')}/chat/completions", json=body)
            except httpx.TimeoutException:
                problem = f"no answer within {self.config.timeout_s:g} s"
                continue
            except httpx.TransportError as error:
                problem = f"no connection: {self._clean(str(error))}"
                continue
            if response.status_code in _TRY_AGAIN:
                problem = f"status {response.status_code}: {self._clean(response.text)}"
                told = _retry_after(response.headers)
                continue
            if response.status_code in (401, 403):
                raise UsageError(f"the endpoint refuses the key (status {response.status_code}); "
                                 "it is read from DICE_GENERATOR_KEY")
            if response.status_code != 200:
                raise UsageError(f"the endpoint refuses the request (status {response.status_code}): "
                                 f"{self._clean(response.text)}")
            try:
                return self._completion(response.json(), len(system) + len(user))
            except ValueError as error:
                problem = f"the answer cannot be read: {error}"
        raise EndpointError(f"{self.config.model}: {problem} ({self.config.attempts} tries)")

    def _wait(self, attempt: int, told: float | None) -> float:
        doubled = _FIRST_WAIT_S * 2.0 ** (attempt - 1) * self._random.uniform(0.75, 1.25)
        return min(_LONGEST_WAIT_S, max(doubled, told or 0.0))

    def _keep_rate(self) -> None:
        if self.config.requests_per_minute:
            now = self._clock()
            if now < self._next_at:
                self._sleep(self._next_at - now)
            self._next_at = max(now, self._next_at) + 60.0 / self.config.requests_per_minute

    def _clean(self, text: str) -> str:
        """The beginning of a server's text on one line, without the key, should it have come back."""
        if self.config.api_key:
            text = text.replace(self.config.api_key, "***")
        return " ".join(text.split())[:200]

    def _completion(self, data: Any, characters_in: int) -> Completion:
        if not isinstance(data, dict) or not isinstance(data.get("choices"), list):
            raise ValueError("there is no list `choices`")
        first = data["choices"][0] if data["choices"] else {}
        message = first.get("message") if isinstance(first, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if content is not None and not isinstance(content, str):
            raise ValueError("`content` is no text")
        usage = data.get("usage")
        given = usage if isinstance(usage, dict) else {}
        read, written = (given.get(name) for name in ("prompt_tokens", "completion_tokens"))
        reason = str(first.get("finish_reason") or "") if isinstance(first, dict) else ""
        if _is_count(read) and _is_count(written):
            return Completion(content or "", reason, read, written, counted=True)
        return Completion(content or "", reason, estimate_tokens(characters_in), estimate_tokens(len(content or "")),
                          counted=False)


@dataclass
class Budget:
    """What asking may use in one run, and what it has used. A limit of 0 is none."""

    max_tokens: int = 0
    max_cost: float = 0.0
    price_in: float = 0.0
    price_out: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    requests: int = 0

    @property
    def cost(self) -> float:
        """What the tokens cost so far."""
        return self._cost(self.tokens_in, self.tokens_out)

    def allows(self, characters_in: int, answer_tokens: int) -> bool:
        """Whether a request of this size, with the longest answer, still fits."""
        tokens_in, tokens_out = self.tokens_in + estimate_tokens(characters_in), self.tokens_out + answer_tokens
        if self.max_tokens and tokens_in + tokens_out > self.max_tokens:
            return False
        return not (self.max_cost and self._cost(tokens_in, tokens_out) > self.max_cost)

    def spend(self, completion: Completion) -> None:
        """Count an answer."""
        self.requests += 1
        self.tokens_in += completion.tokens_in
        self.tokens_out += completion.tokens_out

    def _cost(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6


def estimate_tokens(characters: int) -> int:
    """About how many tokens a text of so many characters has, rounded up."""
    return -(-characters // _CHARACTERS_PER_TOKEN)


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a `Retry-After` header; its form with a date is left to our own waits."""
    try:
        return max(0.0, float(headers["Retry-After"]))
    except (KeyError, ValueError):
        return None
