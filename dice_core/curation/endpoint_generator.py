"""Kernels from a chat endpoint: prompts from files, answers kept on disk, a budget that ends the asking cleanly."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from dice_core.curation.endpoint import Budget, Completion, Endpoint, EndpointConfig
from dice_core.curation.structures import DEVICES, StructureTask
from dice_core.errors import ContractError, EndpointError, SourceError
from dice_core.files import sha256_bytes, write_atomic
from dice_core.model.prompts import extract_kernel
from dice_core.records import make_id, utc_now

#: This many requests without an answer, one after the other, mean that the endpoint is down.
MOST_FAILURES = 3

_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)
_UNFINISHED_THOUGHT = re.compile(r"<(think|thinking|reasoning)>(?!.*</\1>)", re.DOTALL)


@dataclass(frozen=True)
class Prompts:
    """The texts that ask for a kernel: one for the system, one for each device with `$pytorch_code` in it."""

    system: str
    by_device: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> Prompts:
        """Read `system.md`, `cpu.md` and `cuda.md`.

        Raises:
            SourceError: a file is not there or not UTF-8.
            ContractError: a prompt has no `$pytorch_code`, or a placeholder besides.
        """
        texts = {name: _read(folder / f"{name}.md") for name in ("system", *DEVICES)}
        for device in DEVICES:
            template = string.Template(texts[device])
            if not template.is_valid() or template.get_identifiers() != ["pytorch_code"]:
                raise ContractError(f"{folder / device}.md: must have $pytorch_code as its only placeholder")
        return cls(texts["system"].strip(), {device: texts[device] for device in DEVICES})

    def user(self, task: StructureTask) -> str:
        """The user's message for a task."""
        return string.Template(self.by_device[task.device]).substitute(pytorch_code=task.pytorch_code.strip())

    @property
    def digest(self) -> str:
        """Hash of all texts."""
        return sha256_bytes(json.dumps(asdict(self), sort_keys=True))


class AnswerCache:
    """Answers as files, named by what was asked: a killed run goes on without asking, or paying, twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, config: EndpointConfig, system: str, user: str) -> Path:
        """Where the answer to these messages is kept."""
        asked = {"system": sha256_bytes(system), "user": sha256_bytes(user), **config.sampling}
        return self._folder / f"{make_id('gen', asked)}.json"

    def get(self, path: Path) -> Completion | None:
        """The kept answer, if there is one.

        Raises:
            SourceError: the file is damaged; it is not asked again unnoticed, since that would cost.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return Completion(**data["completion"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"{path}: not an answer as it was kept ({error}); remove it to ask again") from error

    def put(self, path: Path, config: EndpointConfig, completion: Completion) -> None:
        """Keep an answer, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {"asked": config.sampling, "at": utc_now(), "completion": asdict(completion)}
        write_atomic(path, json.dumps(data, indent=1) + "\n")


class EndpointGenerator:
    """Asks an endpoint for the kernel of each task. `outcomes` counts how that went, by reason."""

    def __init__(
        self, endpoint: Endpoint, prompts: Prompts, cache: AnswerCache, budget: Budget,
        progress: Callable[[str], None] = lambda note: None,
    ) -> None:
        self.name = f"{endpoint.config.model} (endpoint)"
        self.budget = budget
        self.outcomes: Counter[str] = Counter()
        self._endpoint, self._prompts, self._cache, self._progress = endpoint, prompts, cache, progress
        self._failures = 0

    def generate(self, task: StructureTask) -> str | None:
        """The kernel in the endpoint's answer; None, with a reason in `outcomes`, where there is none.

        Raises:
            UsageError: the endpoint refuses the key, the model or the request.
            EndpointError: several requests in a row had no answer. What was answered before is kept.
            SourceError: a kept answer is damaged.
        """
        completion = self._answer(task)
        if completion is None:
            return None
        kernel, reason = kernel_of_answer(completion)
        self._note(task, reason)
        return kernel

    def _answer(self, task: StructureTask) -> Completion | None:
        system, user = self._prompts.system, self._prompts.user(task)
        path = self._cache.path(self._endpoint.config, system, user)
        if (kept := self._cache.get(path)) is not None:
            self.outcomes["from_cache"] += 1
            return kept
        if not self.budget.allows(len(system) + len(user), self._endpoint.config.max_tokens):
            self._note(task, "budget_reached")
            return None
        try:
            completion = self._endpoint.complete(system, user)
        except EndpointError as error:
            self._failures += 1
            self._note(task, "no_answer", str(error))
            if self._failures >= MOST_FAILURES:
                raise
            return None
        self._failures = 0
        self.budget.spend(completion)
        self._cache.put(path, self._endpoint.config, completion)
        return completion

    def _note(self, task: StructureTask, reason: str, more: str = "") -> None:
        self.outcomes[reason] += 1
        self._progress(f"{task.problem_name}: {reason}{f' ({more})' if more else ''}")


def kernel_of_answer(completion: Completion) -> tuple[str | None, str]:
    """The kernel in an answer, without what the model thought before it, and how the reading ended.

    Returns:
        (source, `kernel`), or None with `empty_answer`, `cut_off` or `no_kernel`.
    """
    text = _THOUGHT.sub("", completion.text.replace("\r\n", "\n"))
    if not completion.text.strip():
        return None, "empty_answer"
    if _UNFINISHED_THOUGHT.search(text):
        return None, "cut_off"
    kernel = extract_kernel(text)
    if kernel is None:
        return None, "cut_off" if completion.finish_reason == "length" else "no_kernel"
    return kernel, "kernel"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SourceError(f"{path}: no such prompt") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: byte {error.start} is not UTF-8") from error
