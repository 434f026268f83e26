"""ReLU in one pass."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>
torch::Tensor relu(torch::Tensor x) {
    x = x.contiguous();
    auto out = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = in[i] > 0.0f ? in[i] : 0.0f;
    return out;
}
"""

extension = load_inline(
    name="level1_19",
    cpp_sources=SOURCE,
    functions=["relu"],
    extra_cflags=["-O3", "-march=native", "-ffast-math"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu(x)
