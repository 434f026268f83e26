"""The whole arena on a real GPU: one bad kernel never touches the next one."""

from __future__ import annotations

import pytest
from arena_helpers import TANH, config

from dice_core.arena.evaluate import evaluate
from dice_core.lake.attempts import AttemptFile, read_attempt
from dice_core.records import Environment, Honesty, Verdict, WorkItem

pytestmark = pytest.mark.gpu

KERNEL = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
__global__ void work(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  BODY
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  work<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
extension = load_inline(
    name="ext", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=SOURCE, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return AFTER(extension.run(x))
'''
BODIES = {
    "right": ("if (i < n) y[i] = tanhf(x[i]);", ""),
    "half of it": ("if (i < n / 2) y[i] = tanhf(x[i]);", ""),
    "out of bounds": ("y[i + (1ll << 40)] = tanhf(x[i]);", ""),
    "traps": ("if (i == 0) asm(\"trap;\");", ""),
    "for ever": ("while (clock64() > 0) { if (i < n) y[i] = x[i]; }", ""),
    "right again": ("if (i < n) { const float v = x[i]; y[i] = tanhf(v); }", ""),
    "library": ("if (i < n) y[i] = x[i];", "torch.tanh"),
}
EXPECTED = {
    "right": Verdict.CORRECT, "half of it": Verdict.INCORRECT_NUMERICAL, "out of bounds": Verdict.RUNTIME_ERROR,
    "traps": Verdict.RUNTIME_ERROR, "for ever": Verdict.TIMEOUT, "right again": Verdict.CORRECT,
    "library": Verdict.CORRECT,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AttemptFile]:
    folder = tmp_path_factory.mktemp("cuda")
    environment = Environment({"machine": "gpu test"}, {})
    items = {name: WorkItem(TANH, KERNEL.replace("BODY", body).replace("AFTER", after), "cuda", "quick")
             for name, (body, after) in BODIES.items()}
    settings = config(folder, device="cuda", build_jobs=None, call_timeout_s=5.0, check_timeout_s=5.0)
    evaluate(list(items.values()), folder / "attempts", settings, environment)
    found = {path.name.split(".")[0]: path for path in (folder / "attempts").glob("att_*.parquet")}
    return {name: read_attempt(found[item.attempt_id(environment.environment_id)]) for name, item in items.items()}


@pytest.mark.parametrize("name", BODIES)
def test_verdict(results: dict[str, AttemptFile], name: str) -> None:
    attempt = results[name].attempt
    assert attempt.verdict is EXPECTED[name], attempt.evidence


def test_a_timed_kernel_has_device_times(results: dict[str, AttemptFile]) -> None:
    content = results["right"]
    assert content.attempt.honesty is Honesty.OWN
    assert content.attempt.speedup is not None and content.attempt.speedup_low is not None
    assert all(sample.device_us is not None and sample.device_us > 0 for sample in content.samples)
    assert {sample.side for sample in content.samples} == {"eager", "candidate"}


def test_torch_behind_the_kernel_is_seen(results: dict[str, AttemptFile]) -> None:
    assert results["library"].attempt.honesty is Honesty.MIXED
