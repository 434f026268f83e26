"""What we know beyond KernelBench's `eval_results.json`, in a file of its own beside it: `dice_results.json`.

The native file keeps KernelBench's keys and meanings. Here are, for each sample, our verdict, honesty, interval and
KernelBench's own verdict, the problem's traits, and the scores of the level in all views.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dice_core.bench.evaluation import Evaluation
from dice_core.bench.score import THRESHOLDS, VIEWS, fast_p
from dice_core.files import write_atomic
from dice_core.records import Attempt

FILE_NAME = "dice_results.json"
_FORMAT = 1


def write_sidecar(folder: Path, evaluation: Evaluation, environment_id: str, attempts: Mapping[str, Attempt], level: int
                  ) -> Path:
    """Write the sidecar of one level into `folder`, atomically."""
    content = {
        "format": _FORMAT, "evaluation_id": evaluation.evaluation_id(environment_id), "level": level,
        "environment_id": environment_id, "scores": score_rows(evaluation, environment_id, attempts, level),
        "samples": _samples(evaluation, environment_id, attempts, level),
    }
    return write_atomic(folder / FILE_NAME, json.dumps(content, indent=1))


def score_rows(evaluation: Evaluation, environment_id: str, attempts: Mapping[str, Attempt], level: int
               ) -> list[dict[str, Any]]:
    """fast_p of one level in every view, at the point estimate and at the lower bound, with Wilson intervals."""
    outcomes = [one for one in evaluation.outcomes(environment_id, attempts) if one.level == level]
    rows = []
    for view in VIEWS:
        for p in THRESHOLDS:
            for at_lower_bound in (False, True):
                score = fast_p(outcomes, p, view=view, at_lower_bound=at_lower_bound).get(level)
                if score is not None:
                    rows.append({"view": view, "at_lower_bound": at_lower_bound, **asdict(score)})
    return rows


def _samples(evaluation: Evaluation, environment_id: str, attempts: Mapping[str, Attempt], level: int
             ) -> Sequence[dict[str, Any]]:
    rows = []
    for member in evaluation.members:
        if member.problem.level != level:
            continue
        row: dict[str, Any] = {"problem_id": member.problem.number, "sample_id": member.sample_id,
                               "no_kernel_reason": member.no_kernel_reason}
        key = evaluation.attempt_of(member, environment_id)
        if key is not None:
            one = attempts[key]
            row |= {"attempt_id": key, "verdict": one.verdict.value, "honesty": one.honesty.value,
                    "kernelbench_correct": one.kernelbench_correct, "speedup": one.speedup,
                    "speedup_low": one.speedup_low, "speedup_high": one.speedup_high,
                    "baseline_us": one.baseline_us, "candidate_us": one.candidate_us,
                    "traits": {trait["trait"]: trait["holds"] for trait in one.evidence.get("traits", ())}}
        rows.append(row)
    return rows
