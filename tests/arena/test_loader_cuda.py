"""CUDA kernels in all tiers on a real device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dice_core.arena.build import BuildFarm
from dice_core.arena.capture import BuildRequest
from dice_core.arena.loader import load_artefact

pytestmark = pytest.mark.gpu

CUDA = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

template <typename T>
__global__ void scale_kernel(const T* x, T* y, float factor, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = static_cast<T>(static_cast<float>(x[i]) * factor);
}
torch::Tensor scale(torch::Tensor x, double factor) {
  TORCH_CHECK(x.is_cuda(), "x must be on the GPU, it is on ", x.device());
  const c10::cuda::CUDAGuard guard(x.device());
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const int64_t n = input.numel();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(input.scalar_type(), "scale", ([&] {
    scale_kernel<scalar_t><<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), static_cast<float>(factor), n);
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
bool workspace(int64_t bytes) {
  auto memory = c10::cuda::CUDACachingAllocator::get()->allocate(bytes);
  return memory.get() != nullptr;
}
"""
CPP = "torch::Tensor scale(torch::Tensor x, double factor);\nbool workspace(int64_t bytes);"


def load(folder: Path, tier: str) -> Any:
    major, minor = torch.cuda.get_device_capability()
    farm = BuildFarm(folder, device="cuda", arch=f"sm_{major}{minor}", tiers=(tier,))
    request = BuildRequest(
        "scale", (CPP,), (CUDA,), (("scale", "scale"), ("workspace", "workspace")),
        extra_cuda_cflags=("-O3", "--use_fast_math"), with_cuda=True,
    )  # fmt: skip
    result = farm.build(request)
    assert (result.status, result.tier) == ("ok", tier), result.log
    return load_artefact(result), result


def check(module: Any) -> None:
    for dtype in (torch.float32, torch.float16, torch.float64):
        x = torch.randn(1000, 33, device="cuda").to(dtype)
        assert torch.allclose(module.scale(x, 2.0), x * 2)
        assert torch.allclose(module.scale(x.t(), 0.5), x.t() * 0.5)
    with pytest.raises(RuntimeError, match="it is on cpu"):
        module.scale(torch.zeros(2), 1.0)
    assert module.workspace(1 << 20)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = module.scale(torch.ones(1 << 20, device="cuda"), 3.0)
    stream.synchronize()
    assert bool((y == 3).all())


def test_cuda_kernels_agree_in_the_light_tier(tmp_path: Path) -> None:
    check(load(tmp_path, "light")[0])


@pytest.mark.slow
def test_cuda_kernels_agree_in_the_aten_tier(tmp_path: Path) -> None:
    check(load(tmp_path, "aten")[0])


@pytest.mark.slow
def test_cuda_kernels_agree_in_the_full_tier_at_ten_times_the_cost(tmp_path: Path) -> None:
    light, full = load(tmp_path, "light"), load(tmp_path, "full")
    check(full[0])
    assert full[1].cpu_seconds > 5 * light[1].cpu_seconds
