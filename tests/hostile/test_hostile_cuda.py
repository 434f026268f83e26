"""Tricks that need a GPU: streams, events, graphs, the cache, and ways to break the device."""

from __future__ import annotations

import pytest
from arena_helpers import TANH, config

from dice_core.arena.evaluate import evaluate
from dice_core.lake.attempts import AttemptFile, read_attempt
from dice_core.records import Environment, WorkItem

pytestmark = pytest.mark.gpu

#: A candidate that does the reference's work may seem this much faster.
NO_GAIN = 1.3

HEAD = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
__global__ void work(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanhf(x[i]);
}
__global__ void wait_then_work(const float* x, float* y, int64_t n) {
  const long long until = clock64() + 2000000;
  while (clock64() < until) {}
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanhf(x[i]);
}
__global__ void spin() { while (clock64() > 0) {} }
__global__ void trap_now() { asm("trap;"); }
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  work<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
torch::Tensor hidden(torch::Tensor x) {
  static cudaStream_t stream = [] {
    cudaStream_t made;
    cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    return made;
  }();
  auto y = torch::empty_like(x);
  wait_then_work<<<(x.numel() + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
torch::Tensor carve(torch::Tensor x) {
  cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1 << 30);
  cudaStreamAttrValue value = {};
  value.accessPolicyWindow.base_ptr = x.data_ptr<float>();
  value.accessPolicyWindow.num_bytes = x.numel() * 4;
  value.accessPolicyWindow.hitRatio = 1.0f;
  value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  cudaStreamSetAttribute(0, cudaStreamAttributeAccessPolicyWindow, &value);
  cudaGetLastError();  // the legacy stream may refuse; the limit stands
  return run(x);
}
void endless() { spin<<<1, 1>>>(); }
void trap() { trap_now<<<1, 1>>>(); }
"""
DECLARED = """torch::Tensor run(torch::Tensor x); torch::Tensor hidden(torch::Tensor x);
torch::Tensor carve(torch::Tensor x); void endless(); void trap();"""
extension = load_inline(name="ext", cpp_sources=DECLARED, cuda_sources=SOURCE,
                        functions=["run", "hidden", "carve", "endless", "trap"])
'''
MODEL = '''
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        %s
'''
#: name -> (before the class, body of forward, verdicts)
CASES: dict[str, tuple[str, str, set[str]]] = {
    # STR-03: nobody waits for a stream that nobody knows. Waiting for the whole device makes it correct, and slow.
    "hidden stream": ("", "return extension.hidden(x)",
                      {"CORRECT", "INCORRECT_NUMERICAL", "CONTRACT_VIOLATION", "TIMING_DISAGREE"}),
    # STR-03, STR-09: work left on a side stream of torch's.
    "work left on a side stream": (
        "side = torch.cuda.Stream()",
        "with torch.cuda.stream(side):\n            torch.cuda._sleep(2_000_000)\n            return torch.tanh(x)",
        {"CORRECT", "INCORRECT_NUMERICAL", "CONTRACT_VIOLATION", "TIMING_DISAGREE"}),
    # PAT-01: events tell what the candidate wants.
    "patched events": (
        ("torch.cuda.Event.elapsed_time = lambda self, other: 0.001\n"
        "torch.cuda.Event.record = lambda self, *a: None"),
        "return extension.run(extension.run(x) * 0 + x)",
        {"CORRECT", "TIMING_DISAGREE", "CONTRACT_VIOLATION", "RUNTIME_ERROR"}),
    # PAT-03: waiting does not wait.
    "patched synchronize": (
        "torch.cuda.synchronize = lambda *a: None\ntorch.cuda.current_stream().synchronize()",
        "torch.cuda._sleep(200_000)\n        return extension.run(x)", {"CORRECT", "TIMING_DISAGREE"}),
    # STR-07: a graph over the first call's inputs.
    "frozen graph": (
        "", ("if 'g' not in self.kept:\n"
        "            y = extension.run(x)\n            torch.cuda.synchronize()\n"
        "            g = torch.cuda.CUDAGraph()\n"
        "            with torch.cuda.graph(g):\n                y = torch.tanh(x)\n"
        "            self.kept.update(g=g, y=y, x=x)\n"
        "        self.kept['g'].replay()\n        return self.kept['y'].clone()"),
        {"INCORRECT_NUMERICAL", "CONTRACT_VIOLATION", "RUNTIME_ERROR"}),
    # ENV-01: inputs are kept in the cache across flushes.
    "carve-out of the cache": ("", "return extension.carve(x)", {"CORRECT", "TIMING_DISAGREE"}),
    # ENV-04: the device is to be freed and used again.
    "a kernel that never ends": ("", "extension.endless()\n        return extension.run(x)", {"TIMEOUT"}),
    "a trap": ("", "extension.trap()\n        return extension.run(x)", {"RUNTIME_ERROR"}),
    "all the memory": (
        "", ("self.kept[len(self.kept)] = torch.empty(1 << 42, dtype=torch.uint8, device=x.device)\n"
        "        return extension.run(x)"), {"OUT_OF_MEMORY"}),
    "a trap after the answer": (
        "", "y = extension.run(x)\n        torch.cuda.synchronize()\n        extension.trap()\n        return y",
        {"RUNTIME_ERROR"}),
    "pinned output on the host": ("", "return torch.tanh(x).cpu().pin_memory()", {"CONTRACT_VIOLATION"}),
    # Streams used rightly are no offence.
    "honest: a stream that is joined": (
        "side = torch.cuda.Stream()",
        ("side.wait_stream(torch.cuda.current_stream())\n        with torch.cuda.stream(side):\n"
        "            y = torch.tanh(x)\n        torch.cuda.current_stream().wait_stream(side)\n"
        "        y.record_stream(torch.cuda.current_stream())\n        return y"), {"CORRECT"}),
    "honest: after all of these": ("", "return extension.run(x)", {"CORRECT"}),
}
DOES_THE_SAME_WORK = ("hidden stream", "work left on a side stream", "patched events", "patched synchronize",
                      "carve-out of the cache")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AttemptFile]:
    folder = tmp_path_factory.mktemp("cuda")
    environment = Environment({"machine": "gpu test"}, {})
    problem = TANH.replace("512, 1024", "4096, 4096")
    items = {name: WorkItem(problem, HEAD + top + MODEL % body, "cuda", "quick")
             for name, (top, body, _) in CASES.items()}
    settings = config(folder, device="cuda", build_jobs=None, call_timeout_s=5.0, check_timeout_s=10.0)
    evaluate(list(items.values()), folder / "attempts", settings, environment)
    found = {path.name.split(".")[0]: path for path in (folder / "attempts").glob("att_*.parquet")}
    return {name: read_attempt(found[item.attempt_id(environment.environment_id)]) for name, item in items.items()}


@pytest.mark.parametrize("name", CASES)
def test_verdict(results: dict[str, AttemptFile], name: str) -> None:
    attempt = results[name].attempt
    assert attempt.verdict.value in CASES[name][2], attempt.evidence


@pytest.mark.parametrize("name", DOES_THE_SAME_WORK)
def test_no_gain(results: dict[str, AttemptFile], name: str) -> None:
    """tanh of 64 MiB is bound by memory: nobody who does the work is faster."""
    low = results[name].attempt.speedup_low
    assert low is None or low < NO_GAIN
