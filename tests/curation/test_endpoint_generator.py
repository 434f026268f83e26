from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dice_core.curation.augmentation import augmented_records
from dice_core.curation.endpoint import Budget, Completion, Endpoint, EndpointConfig, estimate_tokens
from dice_core.curation.endpoint_generator import (
    MOST_FAILURES,
    AnswerCache,
    EndpointGenerator,
    Prompts,
    kernel_of_answer,
)
from dice_core.curation.structures import StructureTask
from dice_core.errors import ContractError, EndpointError, SourceError, UsageError

KEY = "sk-secret-key-of-the-test"
KERNEL = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
ANSWER = f"Here it is.\n```python\n{KERNEL}```\n"
FOLDER = Path(__file__).parents[2] / "datasets" / "structures" / "prompts"


def told(text: str | None, finish: str = "stop", usage: dict[str, int] | None = None) -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": 50} if usage is None else usage
    return {"choices": [{"message": {"content": text}, "finish_reason": finish}], "usage": usage}


class Server:
    """A local endpoint that gives prepared answers in order (the last one for ever) and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Any] = [told(ANSWER)]  # dict, raw text, (status, headers, text) or seconds to hang
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, dict(self.headers), body))
                answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                status, headers = 200, {}
                if isinstance(answer, float):
                    time.sleep(answer)
                    answer = told(ANSWER)
                if isinstance(answer, tuple):
                    status, headers, answer = answer
                raw = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client had enough of waiting

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    one = Server()
    yield one
    one.http.shutdown()
    one.http.server_close()
    one.thread.join()


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def endpoint_of(server: Server, clock: Clock, **changes: Any) -> Endpoint:
    options: dict[str, Any] = {"timeout_s": 5.0, "requests_per_minute": 0, **changes}
    return Endpoint(EndpointConfig(server.url, "coder", KEY, **options), sleep=clock.sleep, clock=lambda: clock.now)


def task_of(number: int = 0) -> StructureTask:
    source = f"class Model{number}: pass"
    return StructureTask("s", "norm", "cpu", {"SIZE": number + 1}, None, f"s_size{number}", source, "")


def make(server: Server, folder: Path, budget: Budget | None = None, **changes: Any) -> tuple[EndpointGenerator, Clock]:
    clock = Clock()
    endpoint = endpoint_of(server, clock, **changes)
    return EndpointGenerator(endpoint, Prompts.read(FOLDER), AnswerCache(folder), budget or Budget()), clock


def test_an_answer_becomes_a_kernel_and_a_record(server: Server, tmp_path: Path) -> None:
    generator, _ = make(server, tmp_path)
    (tmp_path / "s.toml").write_text("name = 's'\n")
    _, [record] = augmented_records(tmp_path, generator, [task_of()])
    assert record.kernel_code == KERNEL and record.origin == "augmentation"
    path, headers, body = server.asked[0]
    assert path == "/v1/chat/completions" and headers["Authorization"] == f"Bearer {KEY}"
    assert body["model"] == "coder" and [one["role"] for one in body["messages"]] == ["system", "user"]
    assert "class Model0: pass" in body["messages"][1]["content"] and "$" not in body["messages"][1]["content"]
    assert (generator.budget.tokens_in, generator.budget.tokens_out, generator.budget.requests) == (100, 50, 1)
    assert generator.outcomes == {"kernel": 1}


def test_a_second_run_pays_nothing(server: Server, tmp_path: Path) -> None:
    first, _ = make(server, tmp_path)
    assert first.generate(task_of()) == KERNEL
    again, _ = make(server, tmp_path)
    assert again.generate(task_of()) == KERNEL
    assert len(server.asked) == 1 and again.budget.requests == 0 and again.outcomes["from_cache"] == 1
    warmer, _ = make(server, tmp_path, temperature=1.0)
    warmer.generate(task_of())
    again.generate(task_of(1))
    assert len(server.asked) == 3, "another temperature and another problem are other questions"
    kept = sorted(tmp_path.glob("gen_*.json"))
    assert len(kept) == 3 and not any(KEY in path.read_text() for path in kept)
    kept[0].write_text("{")
    with pytest.raises(SourceError, match="remove it to ask again"):
        for number in (0, 1):
            make(server, tmp_path)[0].generate(task_of(number))
            make(server, tmp_path, temperature=1.0)[0].generate(task_of(number))


@pytest.mark.parametrize(
    ("first", "longest"),
    [
        ((429, {"Retry-After": "7"}, "slow down"), 7.0),
        ((429, {"Retry-After": "Tue, 01 Dec 2026 10:00:00 GMT"}, ""), 1.25),
        ((503, {}, "busy"), 1.25),
        ("not json at all", 1.25),
        ({"error": "no choices"}, 1.25),
        ({"choices": [{"message": {"content": 3}}]}, 1.25),
    ],
)
def test_what_may_pass_is_tried_again(server: Server, tmp_path: Path, first: Any, longest: float) -> None:
    server.answers = [first, told(ANSWER)]
    generator, clock = make(server, tmp_path)
    assert generator.generate(task_of()) == KERNEL
    assert len(server.asked) == 2 and len(clock.slept) == 1
    assert 0.75 <= clock.slept[0] <= longest


def test_a_slow_endpoint_is_left_and_asked_again(server: Server, tmp_path: Path) -> None:
    server.answers = [1.5, told(ANSWER)]
    generator, _ = make(server, tmp_path, timeout_s=0.3)
    assert generator.generate(task_of()) == KERNEL
    assert len(server.asked) == 2


def test_an_endpoint_that_is_down_ends_the_run(server: Server, tmp_path: Path) -> None:
    server.answers = [(500, {}, f"your key {KEY} is odd\nand more")]
    generator, clock = make(server, tmp_path, attempts=3)
    for number in range(MOST_FAILURES - 1):
        assert generator.generate(task_of(number)) is None
    with pytest.raises(EndpointError, match=r"status 500: your key \*\*\* is odd and more \(3 tries\)") as error:
        generator.generate(task_of(9))
    assert KEY not in str(error.value)
    assert generator.outcomes == {"no_answer": MOST_FAILURES}
    assert len(server.asked) == 3 * MOST_FAILURES
    assert clock.slept[1] > clock.slept[0] * 1.1, "waits grow"
    assert list(tmp_path.iterdir()) == []


def test_one_lost_answer_does_not_end_the_run(server: Server, tmp_path: Path) -> None:
    server.answers = [(500, {}, ""), (500, {}, ""), told(ANSWER), (500, {}, ""), (500, {}, ""), told(ANSWER)]
    generator, _ = make(server, tmp_path, attempts=1)
    found = [generator.generate(task_of(number)) for number in range(6)]
    assert found == [None, None, KERNEL, None, None, KERNEL]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 302])
def test_a_refusal_is_not_tried_again(server: Server, tmp_path: Path, status: int) -> None:
    server.answers = [(status, {}, f"no: {KEY}")]
    generator, clock = make(server, tmp_path)
    with pytest.raises(UsageError, match=f"status {status}") as error:
        generator.generate(task_of())
    assert KEY not in str(error.value) and len(server.asked) == 1 and clock.slept == []


def test_no_server_at_all(tmp_path: Path, server: Server) -> None:
    config = EndpointConfig("http://127.0.0.1:9/v1", "coder", KEY, attempts=2)
    clock = Clock()
    with Endpoint(config, sleep=clock.sleep) as endpoint, pytest.raises(EndpointError, match="no connection"):
        endpoint.complete("a", "b")
    assert len(clock.slept) == 2  # one wait before the second try, one for the rate


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"choices": []}, "empty_answer"),
        (told(None), "empty_answer"),
        (told("  \n"), "empty_answer"),
        (told("I cannot do that."), "no_kernel"),
        (told("```python\nclass Model", finish="length"), "cut_off"),
        (told("<think>perhaps\n```python\nclass ModelNew: pass\n```", finish="length"), "cut_off"),
    ],
)
def test_an_answer_without_a_kernel_has_a_reason(server: Server, tmp_path: Path, answer: Any, reason: str) -> None:
    server.answers = [answer]
    generator, _ = make(server, tmp_path)
    assert generator.generate(task_of()) is None
    assert generator.outcomes == {reason: 1}
    assert generator.generate(task_of()) is None
    assert len(server.asked) == 1, "it was paid for, so it is kept"


def test_thoughts_are_not_the_answer() -> None:
    draft = "<think>\n```python\nclass ModelNew:\n    draft = True\n```\n</think>\n" + ANSWER
    assert kernel_of_answer(Completion(draft, "stop", 1, 1, True)) == (KERNEL, "kernel")
    assert kernel_of_answer(Completion(KERNEL, "stop", 1, 1, True)) == (KERNEL, "kernel")
    crlf = "```python\r\nclass ModelNew:\r\n    pass\r\n```"
    assert kernel_of_answer(Completion(crlf, "stop", 1, 1, True))[1] == "kernel"


def test_the_budget_is_kept_and_ends_the_asking(server: Server, tmp_path: Path) -> None:
    generator, _ = make(server, tmp_path, Budget(max_tokens=2100), max_tokens=1000)
    found = [generator.generate(task_of(number)) for number in range(20)]
    assert found[0] == KERNEL and found[-1] is None
    assert generator.budget.tokens_in + generator.budget.tokens_out <= 2100
    assert generator.outcomes["kernel"] == len(server.asked) and generator.outcomes["budget_reached"] > 0
    assert sum(generator.outcomes.values()) == 20
    assert generator.generate(task_of(0)) == KERNEL, "what is kept costs nothing"


def test_cost_is_counted_by_prices() -> None:
    budget = Budget(max_cost=1.0, price_in=2.0, price_out=10.0)
    budget.spend(Completion("x", "stop", 100_000, 50_000, True))
    assert budget.cost == pytest.approx(0.7)
    assert budget.allows(0, 20_000) and not budget.allows(0, 40_000)
    assert Budget().allows(10**9, 10**9)


def test_tokens_are_estimated_where_the_endpoint_does_not_count(server: Server) -> None:
    clock = Clock()
    for usage in ({}, {"prompt_tokens": -1, "completion_tokens": 5}, {"prompt_tokens": True, "completion_tokens": 5}):
        server.answers = [told("abcd", usage=usage)]
        with endpoint_of(server, clock) as endpoint:
            found = endpoint.complete("12", "34567")
        assert (found.tokens_in, found.tokens_out, found.counted) == (estimate_tokens(7), 2, False)


def test_the_rate_is_kept(server: Server) -> None:
    clock = Clock()
    with endpoint_of(server, clock, requests_per_minute=30) as endpoint:
        for _ in range(3):
            endpoint.complete("a", "b")
    assert clock.slept == [2.0, 2.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_url": ""}, "generator_url must be an address"),
        ({"base_url": "ftp://host/v1"}, "generator_url must be an address"),
        ({"base_url": "https://me:secret@host/v1"}, "no user, password"),
        ({"model": ""}, "generator_model"),
        ({"max_tokens": 0}, "generator_max_tokens"),
    ],
)
def test_settings_that_cannot_work(changes: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"base_url": "https://host/v1", "model": "m", **changes}
    with pytest.raises(UsageError, match=message) as error:
        Endpoint(EndpointConfig(**options))
    assert "secret" not in str(error.value)
    assert KEY not in repr(EndpointConfig("https://host/v1", "m", KEY))


def test_prompts_are_checked(tmp_path: Path) -> None:
    for name in ("system", "cpu", "cuda"):
        (tmp_path / f"{name}.md").write_text("write $pytorch_code\n")
    assert Prompts.read(tmp_path).digest != Prompts.read(FOLDER).digest
    (tmp_path / "cpu.md").write_text("write $pytorch_code for $device\n")
    with pytest.raises(ContractError, match=r"cpu.md: must have \$pytorch_code"):
        Prompts.read(tmp_path)
    (tmp_path / "cpu.md").write_bytes(b"\xff")
    with pytest.raises(SourceError, match=r"cpu.md: byte 0 is not UTF-8"):
        Prompts.read(tmp_path)
    (tmp_path / "cpu.md").unlink()
    with pytest.raises(SourceError, match=r"cpu.md: no such prompt"):
        Prompts.read(tmp_path)
