"""A lake full of plausible data, for tests of the lake, the SQL and the report. Deterministic."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from dice_core.lake.attempts import AttemptFile, write_attempt
from dice_core.lake.catalog import Lake
from dice_core.lake.publish import publish
from dice_core.records import (
    Attempt,
    Build,
    Environment,
    Honesty,
    Kernel,
    TimingSample,
    Verdict,
    WorkItem,
    kernel_id,
    make_id,
    problem_id,
)

CPU = Environment(
    identity={"device": "cpu", "cpu": "AMD EPYC 9654 96-Core Processor", "cpu_cores": "2", "cpu_threads": "1",
              "system": "Linux x86_64", "python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.6",
              "cxx": "c++ (Debian 12.2.0-14) 12.2.0", "isolation": "rlimits"},
    facts={"captured_at": "2026-12-01T08:00:00.000Z", "kernel": "6.1.0", "host": "9f86d081884c7d65",
           "load_average": [0.4, 0.3, 0.2], "git_commit": "4e1243bd22c66e76c2ba9eddc1f91394e57f9f83",
           "git_dirty": "clean"},
)
GPU = Environment(
    identity={"device": "cuda", "cpu": "Intel Xeon Platinum 8480+", "cpu_cores": "16", "cpu_threads": "1",
              "system": "Linux x86_64", "python": "3.12.3", "torch": "2.11.0", "numpy": "2.5.0",
              "cxx": "c++ 13.3.0", "isolation": "landlock", "gpu": "NVIDIA H200", "driver": "580.82.07",
              "nvcc": "Build cuda_13.0.r13.0", "gpu_memory": "143771 MiB", "gpu_power_limit": "700.00 W"},
    facts={"captured_at": "2026-12-01T09:00:00.000Z", "git_commit": "4e1243bd22c66e76c2ba9eddc1f91394e57f9f83",
           "gpu_state": {"clocks.sm": "1980 MHz", "temperature.gpu": "41"}},
)

_NAMES = ("softmax_rows", "rms_norm", "layer_norm_gelu", "swiglu_mlp", "causal_attention", "gqa_decode", "rope",
          "matmul_bias_relu", "conv2d_batchnorm", "cumsum", "argmax", "huber_loss", "group_norm", "embedding_bag",
          "residual_dropout", "cross_entropy", "topk_gate", "depthwise_conv", "gelu_tanh", "row_variance")
_BODY = "class {}(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
_STRUCTURES = ("mha_causal", "gqa_decode", "swiglu_mlp", "rms_norm_residual", "rope", "softmax_rows")
_FAILURES = (Verdict.INCORRECT_NUMERICAL, Verdict.COMPILE_ERROR, Verdict.RUNTIME_ERROR, Verdict.INCORRECT_SHAPE,
             Verdict.TIMEOUT, Verdict.CONTRACT_VIOLATION)


def reference(name: str, number: int) -> str:
    return f"# {name} {number}\nimport torch\n\n{_BODY.format('Model')}"


def candidate(name: str, number: int) -> str:
    return f"# {name} {number}\nimport torch\n\n{_BODY.format('ModelNew')}"


def make_samples(
    rng: random.Random, device: str, speedup: float, *, blocks: int = 10, repetitions: int = 4, noise: float = 0.04,
    base_us: float = 400.0,
) -> tuple[TimingSample, ...]:
    samples = []
    for block in range(blocks):
        for order, side in enumerate(("eager", "candidate") if block % 2 else ("candidate", "eager")):
            for repetition in range(-1, repetitions):
                true = base_us if side == "eager" else base_us / speedup
                span = true * math.exp(rng.gauss(0, noise)) * (3.0 if repetition < 0 else 1.0)
                host_us = 2 * span + (rng.uniform(8, 30) if device == "cuda" else 0.0)
                samples.append(TimingSample(
                    side=side, block=block, order_in_block=order, repetition=repetition, warmup=repetition < 0,
                    batch=2, device_us=2 * span if device == "cuda" else None, host_us=host_us,
                    checked=True, input_seed=block, judge_us=host_us + rng.uniform(150, 400),
                ))
    for row in range(5):
        for order, side in enumerate(("eager", "candidate") if row % 2 else ("candidate", "eager")):
            host_us = 8 * ((base_us if side == "eager" else base_us / speedup) + 10) * math.exp(rng.gauss(0, noise))
            samples.append(TimingSample(
                side=side, block=row, order_in_block=order, repetition=0, warmup=False, batch=8,
                device_us=host_us - 10 if device == "cuda" else None, host_us=host_us, checked=True, input_seed=row,
                judge_us=host_us + 250, end_to_end=True))
    return tuple(samples)


def speedup_of(samples: tuple[TimingSample, ...], device: str) -> tuple[float, float, float]:
    """Point and 95 % interval with numpy and scipy: an independent reading of the raw samples."""
    used = [s for s in samples if not s.warmup and not s.end_to_end]
    d = []
    for block in sorted({s.block for s in used}):
        medians = {
            side: np.median([(s.device_us if device == "cuda" else s.host_us) / s.batch
                             for s in used if s.block == block and s.side == side])
            for side in ("eager", "candidate")
        }
        d.append(math.log(medians["eager"]) - math.log(medians["candidate"]))
    mean, error = float(np.mean(d)), float(stats.sem(d))
    t = float(stats.t.ppf(0.975, len(d) - 1))
    return math.exp(mean), math.exp(mean - t * error), math.exp(mean + t * error)


def make_attempt(
    number: int, *, name: str = "softmax_rows", verdict: Verdict = Verdict.CORRECT, honesty: Honesty = Honesty.OWN,
    device: str = "cpu", speedup: float = 1.7, blocks: int = 10, repetitions: int = 4, noise: float = 0.04,
    labels: dict[str, str] | None = None,
) -> AttemptFile:
    rng = random.Random(number)
    environment = GPU if device == "cuda" else CPU
    item = WorkItem(reference(name, number), candidate(name, number), device, "quick")
    correct = verdict is Verdict.CORRECT
    samples = make_samples(rng, device, speedup, blocks=blocks, repetitions=repetitions, noise=noise) if correct else ()
    point, low, high = speedup_of(samples, device) if correct else (None, None, None)
    kernel = Kernel(item.kernel_source, {"test": str(number)}, "cuda" if device == "cuda" else "cpp")
    attempt = Attempt(
        attempt_id=item.attempt_id(environment.environment_id), kernel_id=item.kernel_id, problem_id=item.problem_id,
        environment_id=environment.environment_id, protocol_version=1, plan="quick", device=device, ordinal=0,
        seed_commitment="c" * 64, seed="5" * 16, verdict=verdict, honesty=honesty,
        started_at=f"2026-12-01T08:{number // 60 % 60:02d}:{number % 60:02d}.000Z",
        ended_at=f"2026-12-01T09:{number // 60 % 60:02d}:{number % 60:02d}.500Z",
        stages={"build": 1.5, "load": 0.2, "check": 0.4, "time": 0.9},
        evidence={"message": "none", "traits": traits_of(number)},
        basis=("device" if device == "cuda" else "host") if correct else None, speedup=point,
        speedup_low=low, speedup_high=high, baseline_us=400.0 if correct else None,
        candidate_us=400.0 / speedup if correct else None,
        kernelbench_correct=True if correct or number % 8 == 3 else None,
    )
    build = Build(f"b{number}", item.kernel_id, "ok", "light", "a" * 64, 1.5, 1.4, False, '["c++"]', "")
    return AttemptFile(attempt, environment, item.problem_source, kernel, (build,), samples, labels or {})


def traits_of(number: int) -> list[dict[str, Any]]:
    """Traits of the problem of an attempt: every fifth lets zeros pass, every seventh was never measured."""
    if number % 7 == 0:
        return []
    return [{"trait": name, "holds": holds, "evidence": 0.5 if holds else 80.0, "tolerance": 1e-4}
            for name, holds in (("zero_passable", number % 5 == 0), ("constant_passable", number % 5 == 0),
                                ("replay_passable", number % 10 == 0), ("weight_independent", False),
                                ("tf32_indistinguishable", number % 2 == 0), ("stochastic", False))]


def write_attempts(folder: Path, count: int, **options: Any) -> list[AttemptFile]:
    made = [make_attempt(number, **options) for number in range(count)]
    for one in made:
        write_attempt(folder, one)
    return made


def fill(home: Path) -> None:
    """Fill the lake under `home`: a curation, attempts, a data set, two models, two evaluations."""
    rng = random.Random(7)
    attempts = _attempts(rng)
    for one in attempts:
        write_attempt(home / "attempts" / "new", one)
    with Lake.open(home) as lake:
        publish(lake, home / "attempts" / "new", run_id="run-1")
        lake.commit(_curation(rng, attempts), message="curation", run_id="run-1")
        lake.commit(_models(), message="training", run_id="run-2")
        lake.commit(_evaluations(attempts), message="evaluation", run_id="run-3")


def _attempts(rng: random.Random) -> list[AttemptFile]:
    made = []
    for number in range(96):
        name = _NAMES[number % len(_NAMES)]
        device = "cuda" if number % 3 else "cpu"
        if number % 4 == 3:
            verdict = _FAILURES[number // 4 % len(_FAILURES)] if number != 95 else Verdict.INFRA_ERROR
            made.append(make_attempt(number, name=name, device=device, verdict=verdict, honesty=Honesty.UNKNOWN))
            continue
        honesty = rng.choices([Honesty.OWN, Honesty.MIXED, Honesty.LIBRARY, Honesty.NONE], [70, 14, 11, 5])[0]
        speedup = math.exp(rng.gauss(0.02, 0.05)) if honesty.is_deceptive else math.exp(rng.gauss(0.55, 0.75))
        made.append(make_attempt(number, name=name, device=device, honesty=honesty, speedup=speedup,
                                 noise=rng.uniform(0.02, 0.15), repetitions=3))
    return made


def _curation(rng: random.Random, attempts: list[AttemptFile]) -> dict[str, list[dict[str, Any]]]:
    when = "2026-12-01T08:00:00Z"
    source = make_id("src", {"sha256": "0" * 64})
    curation = make_id("cur", {"sources": ["0" * 64]})
    records: list[dict[str, Any]] = []
    decisions: list[dict[str, Any]] = []

    def record(number: int, name: str, origin: str, structure: str, pytorch: str, kernel: str) -> str:
        identity = make_id("rec", {"number": number, "origin": origin})
        records.append({
            "record_id": identity, "source_file_id": source, "uuid": f"u{number}",
            "row_locator": f"attention/{structure}/SIZE={number}" if structure else f"row {number}",
            "problem_name": name, "pytorch_code": pytorch, "kernel_code": kernel, "reasoning": "",
            "claimed_speedup": round(math.exp(rng.gauss(0.6, 0.8)), 2), "language": "cuda", "origin": origin,
            "structure": structure, "parent_record_id": "", "problem_id": problem_id(pytorch),
            "kernel_id": kernel_id(kernel), "ingested_at": when,
        })
        return identity

    fates = ["duplicate_exact"] * 9 + ["duplicate_ast"] * 4 + ["benchmark_problem"] * 3 + ["deceptive"] * 17 + [
        "below_threshold"] * 38 + ["keep"] * 59
    steps = {"duplicate_exact": "dedup", "duplicate_ast": "dedup", "benchmark_problem": "overlap",
             "deceptive": "honesty", "below_threshold": "speedup", "keep": "speedup"}
    kept = []
    for number, fate in enumerate(fates):
        one = attempts[number] if number < len(attempts) else None
        name = _NAMES[number % len(_NAMES)]
        identity = record(number, name, "source", "", one.problem_source if one else reference(name, 1000 + number),
                          one.kernel.source if one else candidate(name, 1000 + number))
        decisions.append({"curation_id": curation, "record_id": identity, "step": steps[fate],
                          "rule": "claimed_speedup" if fate == "keep" else fate,
                          "verdict": "keep" if fate == "keep" else "drop", "reason": fate.replace("_", " ")})
        if fate == "keep":
            kept.append((identity, "claimed"))
    augmented = 0
    honest = [one for one in attempts if one.attempt.speedup and not one.attempt.honesty.is_deceptive]
    for number in range(30):
        structure = _STRUCTURES[number % len(_STRUCTURES)]
        one = honest[number]
        identity = record(number, f"{structure}_{number}", "augmentation", structure, one.problem_source,
                          one.kernel.source)
        good = number % 5 != 4
        decisions.append({"curation_id": curation, "record_id": identity, "step": "augment",
                          "rule": "measured_speedup" if good else "incorrect", "verdict": "keep" if good else "drop",
                          "reason": "measured"})
        if good:
            kept.append((identity, "measured"))
            augmented += 1
    rules = ["kernel_code_not_empty"] * 6 + ["speedup_finite"] * 2 + ["pytorch_code_has_model"] * 3
    counters: list[tuple[str, str, int]] = [
        ("ingest", "in", 141), ("ingest", "kept", 141),
        ("contract", "in", 141), ("contract", "kept", 130), ("contract", "out:kernel_code_not_empty", 6),
        ("contract", "out:speedup_finite", 2), ("contract", "out:pytorch_code_has_model", 3),
        ("dedup", "in", 130), ("dedup", "kept", 117), ("dedup", "out:duplicate_exact", 9),
        ("dedup", "out:duplicate_ast", 4),
        ("overlap", "in", 117), ("overlap", "kept", 114), ("overlap", "out:benchmark_problem", 3),
        ("honesty", "in", 114), ("honesty", "kept", 97), ("honesty", "out:deceptive", 17),
        ("speedup", "in", 97), ("speedup", "kept", 59), ("speedup", "out:below_threshold", 38),
        ("augment", "in", 30), ("augment", "kept", augmented), ("augment", "out:incorrect", 30 - augmented),
        ("cuke", "in", 59 + augmented), ("cuke", "kept", 59 + augmented),
    ]
    version = make_id("dsv", {"curation": curation})
    return {
        "source_file": [{"source_file_id": source, "uri": "datasets/samples/concur.jsonl", "revision": "1",
                         "sha256": "0" * 64, "size_bytes": 123456, "licence": "Apache-2.0", "fetched_at": when}],
        "curation": [{"curation_id": curation, "run_id": "run-1", "config_json": "{}",
                      "source_files_json": json.dumps([source]),
                      "started_at": when, "ended_at": when}],
        "training_record": records,
        "decision": decisions,
        "quarantine": [{"quarantine_id": make_id("qua", {"n": n}), "source_file_id": source,
                        "row_locator": f"row {200 + n}", "rule": rule, "field": rule.rsplit("_", 2)[0],
                        "value": "", "raw_json": "{}", "quarantined_at": when} for n, rule in enumerate(rules)],
        "counter": [{"run_id": "run-1", "scope": curation, "step": step, "name": name, "value": value}
                    for step, name, value in counters],
        "dataset_version": [{"dataset_version_id": version, "name": "cuke", "merkle_root": "m" * 64,
                             "parent_version_id": "", "curation_id": curation, "recipe_json": "{}",
                             "funnel_json": "{}", "n_records": len(kept), "path": "datasets/cuke", "created_at": when}],
        "dataset_member": [{"dataset_version_id": version, "record_id": identity,
                            "split": "validation" if number % 9 == 0 else "train", "evidence": evidence}
                           for number, (identity, evidence) in enumerate(kept)],
    }


def _models() -> dict[str, list[dict[str, Any]]]:
    rng = random.Random(3)
    curation = make_id("cur", {"sources": ["0" * 64]})
    models, steps = [], []
    for number in (1, 2):
        identity = make_id("mdl", {"n": number})
        models.append({"model_version_id": identity, "name": "dice-tiny", "version": str(number),
                       "recipe_id": "tiny", "dataset_version_id": make_id("dsv", {"curation": curation}),
                       "mlflow_run_id": f"{number:032x}", "digests_json": "{}", "metrics_json": '{"loss": 1.9}',
                       "created_at": f"2026-12-01T10:0{number}:00Z"})
        for step in range(1, 241 if number == 1 else 161):
            floor = 1.9 if number == 1 else 1.6
            steps.append({"model_version_id": identity, "step": step,
                          "loss": floor + 5.2 * math.exp(-step / 45) + rng.gauss(0, 0.06),
                          "learning_rate": 3e-4, "gradient_norm": 1.2, "tokens": 4096, "seconds": 0.21})
    return {"model_version": models, "training_step": steps}


def _evaluations(attempts: list[AttemptFile]) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {"evaluation": [], "evaluation_member": [], "suite_problem": [],
                                             "counter": [], "kernel_claim": []}
    for number, model in enumerate(("", make_id("mdl", {"n": 2}))):
        evaluation = make_id("evl", {"n": number})
        rows["evaluation"].append({
            "evaluation_id": evaluation, "run_id": "run-3", "name": ("library kernels", "dice-tiny greedy")[number],
            "suite": "dicebench", "model_version_id": model, "kernel_source": "folder" if not model else "",
            "config_json": json.dumps({"plan": "quick"}), "created_at": f"2026-12-01T11:0{number}:00Z"})
        chosen = attempts[-45:] if number == 0 else attempts[20:65]
        for place, one in enumerate(chosen):
            level, within = place // 15 + 1, place % 15 + 1
            missing = number == 1 and place % 4 == 0
            rows["evaluation_member"].append({
                "evaluation_id": evaluation, "suite": "dicebench", "level": level, "number": within, "sample_id": 0,
                "problem_id": one.attempt.problem_id, "kernel_id": None if missing else one.attempt.kernel_id,
                "attempt_id": None if missing else one.attempt.attempt_id,
                "no_kernel_reason": "no code block in the answer" if missing else ""})
            if number == 0:
                rows["kernel_claim"].append({
                    "evaluation_id": evaluation, "suite": "dicebench", "level": level, "number": within, "sample_id": 0,
                    "claim_source": "elsewhere.parquet", "model": "a model", "claimed_compiled": True,
                    "claimed_correct": place % 3 > 0, "claimed_runtime_ms": 1.5 if place % 3 else None,
                    "claimed_hardware": "another GPU"})
                rows["suite_problem"].append({
                    "suite": "dicebench", "level": level, "number": within,
                    "name": one.problem_source.split("\n")[0].removeprefix("# "),
                    "problem_id": one.attempt.problem_id, "overrides_json": "{}"})
        gone = sum(m["attempt_id"] is None for m in rows["evaluation_member"] if m["evaluation_id"] == evaluation)
        infra = sum(one.attempt.verdict.is_infra for one in chosen)
        rows["counter"] += [
            {"run_id": "run-3", "scope": evaluation, "step": "attempts", "name": name, "value": value}
            for name, value in (("in", 45), ("kept", 45 - gone - infra), ("out:no_kernel", gone), ("out:infra", infra))]
    return rows
