"""Sum over the middle dimension, row by row."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>
torch::Tensor sum_middle(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 3, "expected (batch, rows, columns)");
    x = x.contiguous();
    const int64_t batch = x.size(0), rows = x.size(1), columns = x.size(2);
    auto out = torch::zeros({batch, 1, columns}, x.options());
    const float* in = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    for (int64_t b = 0; b < batch; ++b)
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < columns; ++c) to[b * columns + c] += in[(b * rows + r) * columns + c];
    return out;
}
"""

extension = load_inline(
    name="level1_47",
    cpp_sources=SOURCE,
    functions=["sum_middle"],
    extra_cflags=["-O3", "-march=native", "-ffast-math"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        if dim != 1:
            raise ValueError("this kernel sums over dimension 1")

    def forward(self, x):
        return extension.sum_middle(x)
