"""Honest candidates that need a GPU and are easily accused: a JIT compiler's kernel, the library inside a kernel."""

from __future__ import annotations

import importlib.util

import pytest
from arena_helpers import TANH, run

pytestmark = pytest.mark.gpu

TRITON = '''
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def work(x, y, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, mask=at < n)
    e = tl.exp(-2.0 * tl.abs(value))
    result = (1.0 - e) / (1.0 + e)
    tl.store(y + at, tl.where(value < 0, -result, result), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        work[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), block=1024)
        return y
'''
PRODUCT = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b)
def get_inputs():
    return [torch.randn(256, 256), torch.randn(256, 256)]
def get_init_inputs():
    return []
"""
LIBRARY_INSIDE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
__global__ void relu(float* y, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n && y[i] < 0) y[i] = 0;
}
torch::Tensor run(torch::Tensor a, torch::Tensor b) {
  auto y = at::mm(a, b);
  relu<<<(y.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), y.numel());
  return y;
}
"""
ext = load_inline(name="ext", cpp_sources="torch::Tensor run(torch::Tensor a, torch::Tensor b);", cuda_sources=SOURCE,
                  functions=["run"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return ext.run(a, b)
'''


@pytest.mark.parametrize(("problem", "candidate", "honesty"), [
    pytest.param(TANH, TRITON, "own", id="triton"),
    pytest.param(PRODUCT, LIBRARY_INSIDE, "mixed", id="library inside"),
])
def test_it_is_correct_and_of_its_class(
    problem: str, candidate: str, honesty: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if "triton" in candidate and importlib.util.find_spec("triton") is None:
        pytest.skip("no triton")
    folder = tmp_path_factory.mktemp("honest-cuda")
    one = run(folder, (problem, candidate), device="cuda", build_jobs=None, load_timeout_s=60.0, call_timeout_s=60.0)[0]
    assert one.attempt.verdict.value == "CORRECT", one.attempt.evidence
    assert one.attempt.honesty.value == honesty, one.attempt.evidence
