"""GELU (tanh form) in one pass instead of eight."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
torch::Tensor new_gelu(torch::Tensor x) {
    x = x.contiguous();
    auto out = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) {
        const float v = in[i];
        const float inner = 0.7978845608f * (v + 0.044715f * v * v * v);
        // 0.5 (1 + tanh(t)) is the logistic function of 2t; past 80 the exponential would overflow.
        to[i] = v / (1.0f + std::exp(std::min(-2.0f * inner, 80.0f)));
    }
    return out;
}
"""

extension = load_inline(
    name="level1_88",
    cpp_sources=SOURCE,
    functions=["new_gelu"],
    extra_cflags=["-O3", "-march=native", "-ffast-math"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.new_gelu(x)
