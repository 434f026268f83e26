"""C++ kernels of ours against real KernelBench tasks, through the arena, at sizes reduced by option."""

from __future__ import annotations

from pathlib import Path

import pytest

from dice_core.arena.evaluate import ArenaConfig, evaluate
from dice_core.bench.evaluation import from_candidates
from dice_core.bench.kernelbench import read_eval_results, read_kernel_folder, write_eval_results
from dice_core.bench.problems import load_suite, parse_sizes, select, with_sizes
from dice_core.lake.attempts import AttemptFile
from dice_core.records import Environment, Verdict

SIZES = ["1/12:M=256,N=256", "1/19:batch_size=16,dim=4096", "1/36:batch_size=2,dim1=32,dim2=32",
         "1/47:batch_size=2,dim1=64,dim2=255", "1/88:batch_size=64,dim=256", "1/91:batch_size=4"]


@pytest.mark.slow
def test_real_tasks_end_in_verdicts_and_in_kernelbench_results(real_data: Path, tmp_path: Path) -> None:
    problems = select(load_suite(real_data / "kernelbench" / "kernelbench_v0_2.parquet", "kernelbench"),
                      "1/12,1/19,1/36,1/47,1/88,1/91")
    sizes = parse_sizes(SIZES)
    reduced = [with_sizes(problem, sizes[problem.level, problem.number]) for problem in problems]
    evaluation = from_candidates("level1", reduced, read_kernel_folder(Path(__file__).parent / "level1_cpu"),
                                 plan="quick", device="cpu", kernel_source="tests")
    environment = Environment({"cpu": "test"}, {})
    files: dict[str, AttemptFile] = {}
    config = ArenaConfig("cpu", tmp_path / "cache", plan="quick")
    evaluate(evaluation.items(), tmp_path / "attempts", config, environment,
             on_result=lambda one: files.__setitem__(one.attempt.attempt_id, one))
    attempts = {key: one.attempt for key, one in files.items()}
    # A busy machine may make a clock unbelievable; it never makes a right kernel wrong.
    assert {a.verdict for a in attempts.values()} <= {Verdict.CORRECT, Verdict.TIMING_DISAGREE}
    assert len(attempts) == 6
    by_level = evaluation.eval_results(environment, attempts, {key: one.samples for key, one in files.items()})
    read = read_eval_results(write_eval_results(tmp_path / "eval_results.json", by_level[1]))
    assert sorted(read) == [12, 19, 36, 47, 88, 91]
    assert all(entry["compiled"] for [entry] in read.values())
