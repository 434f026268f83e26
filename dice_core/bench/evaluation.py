"""An evaluation: which kernel stands for which problem, what the arena made of it, and how that is scored.

The local run and a bundle that travels to a GPU box carry the same object, so their rows in the lake are the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dice_core.bench.kernelbench import CandidateFile, eval_result, missing_result
from dice_core.bench.score import Outcome
from dice_core.errors import SourceError, UsageError
from dice_core.files import sha256_bytes
from dice_core.records import (
    Attempt,
    Environment,
    Problem,
    TimingSample,
    Verdict,
    WorkItem,
    kernel_id,
    make_id,
    utc_now,
)

#: Traits of a problem on which KernelBench's comparison passes what is no kernel.
NOT_DISCRIMINATING = frozenset({"zero_passable", "constant_passable", "replay_passable", "weight_independent"})


@dataclass(frozen=True)
class Member:
    """One (problem, sample): a kernel, or the reason why there is none."""

    problem: Problem
    sample_id: int
    kernel_source: str | None
    no_kernel_reason: str = ""
    claim: Mapping[str, Any] = field(default_factory=dict)  #: what others say of it: columns of `kernel_claim`


@dataclass(frozen=True)
class Evaluation:
    """A named set of members to be measured under one plan on one device."""

    name: str
    suite: str
    kernel_source: str  #: what the kernels came from, in words: a folder, a model version
    members: tuple[Member, ...]
    plan: str
    device: str
    model_version_id: str = ""
    ordinal: int = 0  #: above 0 for a deliberate repeat: the same pairs measured once more, as attempts of their own
    again: int = 0  #: how often it was made before and attempts failed through our own fault

    def items(self) -> list[WorkItem]:
        """Work for the arena: members that have a kernel, each (problem, kernel) pair once."""
        items: dict[tuple[str, str], WorkItem] = {}
        for member in self.members:
            if member.kernel_source is not None:
                item = self._item(member)
                items.setdefault((item.problem_id, item.kernel_id), item)
        return list(items.values())

    def evaluation_id(self, environment_id: str) -> str:
        """Id from what is measured and where; the same evaluation again is the same id."""
        members = [
            [m.problem.level, m.problem.number, m.sample_id, m.problem.problem_id, self._kernel_id(m),
             m.no_kernel_reason]
            for m in self.members
        ]
        again = {key: value for key, value in (("again", self.again), ("ordinal", self.ordinal)) if value}
        return make_id("evl", {**again, "name": self.name, "suite": self.suite, "members": members, "plan": self.plan,
                               "device": self.device, "environment": environment_id, "model": self.model_version_id})

    def tables(
        self, environment_id: str, run_id: str, attempts: Mapping[str, Attempt]
    ) -> dict[str, list[dict[str, Any]]]:
        """Rows for the lake. `attempts` holds what became of each item, by the item's attempt id (`attempts.settle`).

        Raises:
            SourceError: an attempt is missing, so the evaluation is not finished.
        """
        evaluation_id = self.evaluation_id(environment_id)
        rows: list[dict[str, Any]] = []
        used: dict[str, Attempt] = {}
        for member in self.members:
            attempt_id = self.attempt_of(member, environment_id)
            if attempt_id is not None and attempt_id not in attempts:
                raise SourceError(f"evaluation {self.name}: {_where(member)} has no finished attempt {attempt_id}")
            if attempt_id is not None:
                used[attempt_id] = attempts[attempt_id]
                attempt_id = attempts[attempt_id].attempt_id
            rows.append({"evaluation_id": evaluation_id, "suite": self.suite, "level": member.problem.level,
                         "number": member.problem.number, "sample_id": member.sample_id,
                         "problem_id": member.problem.problem_id, "kernel_id": self._kernel_id(member),
                         "attempt_id": attempt_id, "no_kernel_reason": member.no_kernel_reason})
        infra = sum(one.verdict.is_infra for one in used.values())
        missing = sum(row["attempt_id"] is None for row in rows)
        counters = {"in": len(rows), "kept": len(rows) - missing - infra, "out:no_kernel": missing, "out:infra": infra}
        return {
            "evaluation": [{"evaluation_id": evaluation_id, "run_id": run_id, "name": self.name, "suite": self.suite,
                            "model_version_id": self.model_version_id, "kernel_source": self.kernel_source,
                            "config_json": json.dumps({"plan": self.plan, "device": self.device,
                                                       "environment_id": environment_id}),
                            "created_at": utc_now()}],
            "evaluation_member": rows,
            "kernel_claim": [
                {"evaluation_id": evaluation_id, "suite": self.suite, "level": m.problem.level,
                 "number": m.problem.number, "sample_id": m.sample_id, **m.claim}
                for m in self.members if m.claim
            ],
            "suite_problem": self.suite_problems(),
            "problem": [{"problem_id": m.problem.problem_id, "source": m.problem.source} for m in self.members],
            "counter": [{"run_id": run_id, "scope": evaluation_id, "step": "attempts", "name": name, "value": value}
                        for name, value in counters.items()],
        }

    def suite_problems(self) -> list[dict[str, Any]]:
        """Rows that place each problem in its suite."""
        return [{"suite": p.suite, "level": p.level, "number": p.number, "name": p.name, "problem_id": p.problem_id,
                 "overrides_json": json.dumps(p.overrides, sort_keys=True)} for p in (m.problem for m in self.members)]

    def outcomes(self, environment_id: str, attempts: Mapping[str, Attempt]) -> list[Outcome]:
        """What scoring needs: sample 0 of every problem, but those whose attempt failed through our own fault."""
        found = []
        passable = {
            one.problem_id for one in attempts.values()
            if any(trait["holds"] and trait["trait"] in NOT_DISCRIMINATING for trait in one.evidence.get("traits", ()))
        }
        for member in self.members:
            if member.sample_id != 0:
                continue
            attempt = attempts.get(self.attempt_of(member, environment_id) or "")
            if attempt is not None and attempt.verdict.is_infra:
                continue
            correct = attempt is not None and attempt.verdict is Verdict.CORRECT
            found.append(Outcome(member.problem.level, member.problem.number, correct,
                                 attempt is not None and not attempt.honesty.is_deceptive,
                                 attempt.speedup if attempt and correct else None,
                                 attempt.speedup_low if attempt and correct else None,
                                 attempt is not None and attempt.kernelbench_correct is True,
                                 member.problem.problem_id not in passable))
        return found

    def finished_part(self, environment_id: str, attempts: Mapping[str, Attempt]) -> Evaluation:
        """The members that have an attempt in that environment, under a name that says so; itself when all have."""
        done = tuple(m for m in self.members if m.kernel_source is None
                     or self.attempt_of(m, environment_id) in attempts)
        if len(done) == len(self.members):
            return self
        return replace(self, name=f"{self.name} ({len(done)} of {len(self.members)})", members=done)

    def attempt_of(self, member: Member, environment_id: str) -> str | None:
        """Id of the attempt of a member in that environment; None when it has no kernel."""
        return None if member.kernel_source is None else self._item(member).attempt_id(environment_id)

    def eval_results(
        self, environment: Environment, attempts: Mapping[str, Attempt], samples: Mapping[str, Sequence[TimingSample]]
    ) -> dict[int, list[tuple[int, dict[str, Any]]]]:
        """KernelBench entries by level, for `write_eval_results`. Attempts and their raw samples are by attempt id."""
        hardware = environment.identity.get("gpu") or environment.identity.get("cpu", "unknown")
        by_level: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        for member in self.members:
            if member.kernel_source is None:
                entry = missing_result(member.sample_id, member.no_kernel_reason, hardware)
            else:
                key = self._item(member).attempt_id(environment.environment_id)
                entry = eval_result(attempts[key], samples.get(key, ()), member.sample_id, hardware)
            by_level.setdefault(member.problem.level, []).append((member.problem.number, entry))
        return by_level

    def to_json(self) -> dict[str, Any]:
        """Plain JSON form, for a bundle."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """Inverse of `to_json`."""
        members = tuple(Member(**{**m, "problem": Problem(**m["problem"])}) for m in data["members"])
        return cls(**{**data, "members": members})

    def _item(self, member: Member) -> WorkItem:
        assert member.kernel_source is not None
        labels = {"suite": self.suite, "level": str(member.problem.level), "number": str(member.problem.number),
                  "name": member.problem.name, "sample": str(member.sample_id), "evaluation": self.name}
        return WorkItem(member.problem.source, member.kernel_source, self.device, self.plan, self.ordinal, labels)

    @staticmethod
    def _kernel_id(member: Member) -> str | None:
        return None if member.kernel_source is None else kernel_id(member.kernel_source)


def from_candidates(
    name: str, problems: Sequence[Problem], candidates: Sequence[CandidateFile], *, plan: str, device: str,
    kernel_source: str, model_version_id: str = "", reasons: Mapping[tuple[int, int], str] | None = None,
) -> Evaluation:
    """Pair candidates with problems. A problem without a candidate stays, with the reason, since it counts.

    Args:
        name: name of the run.
        problems: the denominator: every problem of the evaluation.
        candidates: kernels by level, problem and sample.
        plan: timing plan.
        device: `cpu` or `cuda`.
        kernel_source: what the kernels came from, in words.
        model_version_id: the model that wrote them, if one did.
        reasons: why a (level, number) has no kernel.

    Raises:
        UsageError: no problems, or a candidate names a problem that is not among them.
    """
    if not problems:
        raise UsageError("an evaluation needs at least one problem")
    by_key: dict[tuple[int, int], list[CandidateFile]] = {(p.level, p.number): [] for p in problems}
    for one in candidates:
        if (one.level, one.number) not in by_key:
            raise UsageError(f"{one.path}: the suite has no level {one.level} problem {one.number}")
        by_key[one.level, one.number].append(one)
    members: list[Member] = []
    for problem in problems:
        found = by_key[problem.level, problem.number]
        members += [Member(problem, one.sample_id, one.source) for one in found]
        if not found:
            reason = (reasons or {}).get((problem.level, problem.number), "no candidate in the folder")
            members.append(Member(problem, 0, None, reason))
    return Evaluation(name, problems[0].suite, kernel_source, tuple(members), plan, device, model_version_id)


def from_pairs(
    name: str, rows: Sequence[Mapping[str, Any]], *, reference_field: str, kernel_field: str, plan: str, device: str,
    source: str,
) -> Evaluation:
    """An evaluation from rows that hold a reference and a kernel side by side; level 0, numbered in row order.

    Raises:
        SourceError: a row lacks a field or holds no text there; names source, row and field.
    """
    members = []
    for number, row in enumerate(rows):
        for wanted in (reference_field, kernel_field):
            if not isinstance(row, Mapping) or not isinstance(row.get(wanted), str) or not row[wanted].strip():
                raise SourceError(f"{source}: row {number}: field {wanted} holds no text")
        label = str(row.get("id", row.get("uuid", number)))
        problem = Problem(name, 0, number, label, row[reference_field])
        members.append(Member(problem, 0, row[kernel_field]))
    if not members:
        raise SourceError(f"{source}: no rows")
    return Evaluation(name, name, f"{source} sha256 {sha256_bytes(json.dumps(list(rows)))[:16]}", tuple(members),
                      plan, device)


def _where(member: Member) -> str:
    return f"level {member.problem.level} problem {member.problem.number} sample {member.sample_id}"
