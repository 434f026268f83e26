"""Small ConCuR-like rows for the tests of curation and of what comes out of it."""

from __future__ import annotations

from typing import Any

from dice_core.records import TrainingRecord

MODULE = '''\
import torch
import torch.nn as nn

size = {size}


class Model(nn.Module):
    """Doc."""

    def forward(self, x):
        return torch.{op}(x) * 2


def get_inputs():
    return [torch.rand(size)]


def get_init_inputs():
    return []
'''

KERNEL = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
__global__ void {op}_kernel(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = {expression};
}}
torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    {op}_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}}
"""
module = load_inline(
    name="{op}_ext", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=source, functions=["run"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.run(x)
'''

OPS = ("relu", "sigmoid", "tanh", "exp", "sin", "cos", "abs", "neg", "square", "sqrt", "log1p", "erf")


def module(op: str = "relu", size: int = 64) -> str:
    return MODULE.format(op=op, size=size)


def kernel(op: str = "relu", expression: str = "x[i] > 0.f ? 2.f * x[i] : 0.f") -> str:
    return KERNEL.format(op=op, expression=expression)


def raw_row(number: int = 0, **changes: Any) -> dict[str, Any]:
    op = OPS[number % len(OPS)]
    return {
        "uuid": f"u{number}",
        "problem_name": f"{op}_twice_{number}",
        "pytorch_code": module(op, 64 + number),
        "generated_code": kernel(op, f"2.f * {op}f(x[i])"),
        "generated_think": "think",
        "speedup_over_eager": 2.5,
        **changes,
    }


def training_record(number: int = 0, **changes: Any) -> TrainingRecord:
    row = raw_row(number)
    fields = {
        "source_file_id": "src_test",
        "row_locator": f"row {number + 1}",
        "uuid": row["uuid"],
        "problem_name": row["problem_name"],
        "pytorch_code": row["pytorch_code"],
        "kernel_code": row["generated_code"],
        "reasoning": "",
        "claimed_speedup": 2.5,
    }
    return TrainingRecord(**{**fields, **changes})
