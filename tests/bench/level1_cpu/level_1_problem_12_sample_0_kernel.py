"""Rows of B scaled by A, in one pass."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>
torch::Tensor scale_rows(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.dim() == 1 && b.dim() == 2 && a.size(0) == b.size(0), "expected (N,) and (N, M)");
    a = a.contiguous();
    b = b.contiguous();
    auto out = torch::empty_like(b);
    const int64_t rows = b.size(0), columns = b.size(1);
    const float* scale = a.data_ptr<float>();
    const float* in = b.data_ptr<float>();
    float* to = out.data_ptr<float>();
    for (int64_t i = 0; i < rows; ++i) {
        const float factor = scale[i];
        for (int64_t j = 0; j < columns; ++j) to[i * columns + j] = in[i * columns + j] * factor;
    }
    return out;
}
"""

extension = load_inline(
    name="level1_12",
    cpp_sources=SOURCE,
    functions=["scale_rows"],
    extra_cflags=["-O3", "-march=native", "-ffast-math"],
)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return extension.scale_rows(A, B)
