from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from arena_helpers import ENVIRONMENT, TANH, candidate, config, run

from dice_core.arena.evaluate import evaluate
from dice_core.errors import UsageError
from dice_core.lake.attempts import AttemptFile, finished_attempts, read_attempt
from dice_core.records import Honesty, Verdict, WorkItem

SMALL = TANH.replace("512, 1024", "8, 8")

OWN_KERNEL = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cmath>
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* a = x.data_ptr<float>();
  float* b = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) b[i] = std::tanh(a[i]);
  return y;
}
"""

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.extension = %s
    def forward(self, x):
        return self.extension.run(x)
'''
BUILD = 'load_inline(name="k", cpp_sources=source, functions=["run"])'
AT_IMPORT = OWN_KERNEL.replace("class ModelNew", f"built = {BUILD}\n\nclass ModelNew") % "built"
IN_INIT = OWN_KERNEL % BUILD
BROKEN = AT_IMPORT.replace("#include <torch", "#include <no_such_header.h>\n#include <torch")
FALLS_BACK = BROKEN.replace(f"built = {BUILD}", f"try:\n    built = {BUILD}\nexcept Exception:\n    built = None")

BROKEN_REFERENCES = {
    "import": "import no_such_package\n",
    "exit": "raise SystemExit(0)\n",
    "no model": "x = 1\n",
    "syntax": "def broken(:\n",
    "forward": SMALL.replace("return torch.tanh(x)", "return x.no_such()"),
    "inputs": SMALL.replace("return [torch.randn(8, 8)]", "return [torch.randn(8, 9), torch.randn(1)]"),
    "hard exit": SMALL.replace("return torch.tanh(x)", "import os; os._exit(0)"),
    "no tensor": SMALL.replace("return torch.tanh(x)", "return 3"),
}
CASES = {
    "honest": (TANH, candidate("return torch.tanh(torch.tanh(x) * 0 + x)")),
    "small": (SMALL, candidate("return torch.tanh(x)")),
    "large source": (SMALL, candidate("return torch.tanh(x)") + "# " + "x" * 10_000_000 + "\n"),
    "at import": (TANH, AT_IMPORT),
    "in init": (TANH, IN_INIT),
    "broken": (TANH, BROKEN),
    "falls back": (TANH, FALLS_BACK),
    **{name: (source, candidate("raise RuntimeError('must not run')")) for name, source in BROKEN_REFERENCES.items()},
}

PROGRESS: list[str] = []


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AttemptFile]:
    files = run(tmp_path_factory.mktemp("evaluate"), *CASES.values(),
                on_build=lambda built, total, note="": PROGRESS.append(f"{built}/{total} {note}"))
    return dict(zip(CASES, files, strict=True))


def test_progress_of_builds_is_told(outcomes: dict[str, AttemptFile]) -> None:
    assert outcomes
    assert "4/4 candidates read" in PROGRESS
    assert any(line.startswith("2/2 ") for line in PROGRESS)  # equal requests are compiled once
    assert any("compile_error" in line for line in PROGRESS)


def test_an_attempt_file_holds_everything(outcomes: dict[str, AttemptFile]) -> None:
    one = outcomes["honest"]
    attempt = one.attempt
    assert attempt.verdict is Verdict.CORRECT
    assert attempt.kernelbench_correct is True
    assert attempt.speedup is not None and attempt.speedup < 1.0
    assert attempt.speedup_low is not None and attempt.speedup_high is not None
    assert attempt.speedup_low <= attempt.speedup <= attempt.speedup_high
    assert attempt.basis == "host"
    timed = [sample for sample in one.samples if not sample.warmup and not sample.end_to_end]
    assert len(timed) == 2 * 3 * 6
    rows = [sample for sample in one.samples if sample.end_to_end and not sample.warmup]
    assert len(rows) in (2 * 5, 2 * 10)  # in doubt as many again
    assert {sample.side for sample in timed if sample.order_in_block == 0} == {"eager", "candidate"}
    assert any(sample.warmup for sample in one.samples)
    assert all(sample.checked for sample in timed if sample.side == "candidate")
    # Fresh values for each call, the same for both sides.
    assert len({sample.input_seed for sample in timed}) == 3 * 6
    assert {"load", "check", "time", "trace"} <= set(attempt.stages)
    assert one.problem_source == TANH


def test_large_outputs_are_compared_in_the_same_pieces_on_both_sides(tmp_path: Path) -> None:
    large = TANH.replace("512, 1024", "1200, 1024")
    skips = candidate(
        "y = torch.tanh(x)\nself.n = getattr(self, 'n', 0) + 1\nif self.n > 12:\n    y[300:] = 0\nreturn y")
    honest, wrong = run(tmp_path, (large, candidate("return torch.tanh(x)")), (large, skips))
    assert honest.attempt.verdict is Verdict.CORRECT, honest.attempt.evidence
    assert wrong.attempt.verdict is Verdict.CONTRACT_VIOLATION, wrong.attempt.evidence


@pytest.mark.parametrize("name", ["at import", "in init"])
def test_extensions_are_built_and_counted_as_own_work(name: str, outcomes: dict[str, AttemptFile]) -> None:
    one = outcomes[name]
    assert one.attempt.verdict is Verdict.CORRECT, one.attempt.evidence
    assert one.attempt.honesty is Honesty.OWN
    assert one.builds[0].status == "ok"
    assert one.attempt.evidence["extension_calls"] == 1


@pytest.mark.parametrize("name", ["broken", "falls back"])
def test_what_does_not_compile_is_a_compile_error(name: str, outcomes: dict[str, AttemptFile]) -> None:
    assert outcomes[name].attempt.verdict is Verdict.COMPILE_ERROR
    assert "no_such_header" in outcomes[name].attempt.evidence["error"]
    assert outcomes[name].builds[0].status == "compile_error"


@pytest.mark.parametrize("name", BROKEN_REFERENCES)
def test_a_reference_that_fails_is_the_tasks_fault(name: str, outcomes: dict[str, AttemptFile]) -> None:
    attempt = outcomes[name].attempt
    assert attempt.verdict is Verdict.TASK_ERROR
    assert attempt.evidence["error"]
    assert "must not run" not in str(attempt.evidence)


def test_short_calls_are_batched(outcomes: dict[str, AttemptFile]) -> None:
    one = outcomes["small"]
    assert one.attempt.verdict is Verdict.CORRECT
    assert all(sample.batch > 3 for sample in one.samples if not sample.warmup)
    assert one.attempt.baseline_us is not None and one.attempt.baseline_us < 100.0


def test_a_large_source_passes(outcomes: dict[str, AttemptFile]) -> None:
    assert outcomes["large source"].attempt.verdict is Verdict.CORRECT


def test_a_second_run_does_nothing(tmp_path: Path) -> None:
    items = [WorkItem(SMALL, candidate("return torch.tanh(x)"), plan="quick")]
    first = evaluate(items, tmp_path / "a", config(tmp_path), ENVIRONMENT)
    again = evaluate(items * 2, tmp_path / "a", config(tmp_path), ENVIRONMENT)
    elsewhere = evaluate(items, tmp_path / "b", config(tmp_path), ENVIRONMENT,
                         skip={items[0].attempt_id(ENVIRONMENT.environment_id)})
    assert (first.started, first.verdicts) == (1, {"CORRECT": 1})
    assert (again.started, again.skipped) == (0, 2)
    assert (elsewhere.started, elsewhere.skipped) == (0, 1)


@pytest.mark.parametrize(
    "item", [WorkItem(SMALL, "", device="cuda", plan="quick"), WorkItem(SMALL, "", plan="standard")])
def test_items_for_another_arena_are_refused(item: WorkItem, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="item 0"):
        evaluate([item], tmp_path / "a", config(tmp_path), ENVIRONMENT)


_DRIVER = """
import sys
sys.path.insert(0, {root!r})
import importlib.util
spec = importlib.util.spec_from_file_location("arena_helpers", {helpers!r})
h = importlib.util.module_from_spec(spec)
spec.loader.exec_module(h)
from pathlib import Path
from dice_core.records import WorkItem
folder = Path({folder!r})
small = h.TANH.replace("512, 1024", "8, 8")
items = [WorkItem(small, h.candidate(f"return torch.tanh(x) * {{1 + n % 2}}"), plan="quick", ordinal=n)
         for n in range(8)]
print("ready", flush=True)
summary = h.evaluate(items, folder / "attempts", h.config(folder), h.ENVIRONMENT)
print(summary.started, summary.skipped, flush=True)
"""


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    helpers = Path(__file__).parents[1] / "helpers" / "arena_helpers.py"
    script = _DRIVER.format(root=str(helpers.parents[2]), helpers=str(helpers), folder=str(tmp_path))
    rng = random.Random(os.getpid())
    for _ in range(2):
        before = len(finished_attempts(tmp_path / "attempts")) if (tmp_path / "attempts").exists() else 0
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        deadline = time.monotonic() + 120
        while len(list((tmp_path / "attempts").glob("att_*"))) <= before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(rng.random() * 0.5)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    partial = len(finished_attempts(tmp_path / "attempts"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1:] == [str(8 - partial), str(partial)]
    paths = sorted((tmp_path / "attempts").glob("att_*"))
    attempts = [read_attempt(path).attempt for path in paths]
    assert len(paths) == len({attempt.attempt_id for attempt in attempts}) == 8
    assert sorted(attempt.verdict.value for attempt in attempts) == ["CORRECT"] * 4 + ["INCORRECT_NUMERICAL"] * 4
    assert list((tmp_path / "scratch").iterdir()) == []  # the killed runs' folders are gone as well
    links = [link for link in Path("/proc").glob("[0-9]*/cwd") if os.access(link, os.R_OK)]
    assert [link for link in links if str(tmp_path) in os.readlink(link)] == []
