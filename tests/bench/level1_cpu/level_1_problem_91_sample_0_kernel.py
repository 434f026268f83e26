"""Reverse cumulative sum of each row, without the two flips."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>
torch::Tensor reverse_cumsum(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 2, "expected (rows, columns)");
    x = x.contiguous();
    auto out = torch::empty_like(x);
    const int64_t rows = x.size(0), columns = x.size(1);
    const float* in = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    for (int64_t r = 0; r < rows; ++r) {
        float sum = 0.0f;
        for (int64_t c = columns - 1; c >= 0; --c) {
            sum += in[r * columns + c];
            to[r * columns + c] = sum;
        }
    }
    return out;
}
"""

extension = load_inline(
    name="level1_91",
    cpp_sources=SOURCE,
    functions=["reverse_cumsum"],
    extra_cflags=["-O3", "-march=native", "-ffast-math"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        if dim != 1:
            raise ValueError("this kernel sums along dimension 1")

    def forward(self, x):
        return extension.reverse_cumsum(x)
