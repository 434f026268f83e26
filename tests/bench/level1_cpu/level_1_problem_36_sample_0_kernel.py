"""RMSNorm over channels: one pass for the squares, one to scale."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>
torch::Tensor rms_norm(torch::Tensor x, double eps) {
    TORCH_CHECK(x.dim() == 4, "expected (batch, channels, height, width)");
    x = x.contiguous();
    auto out = torch::empty_like(x);
    const int64_t batch = x.size(0), channels = x.size(1), plane = x.size(2) * x.size(3);
    const float* in = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    constexpr int64_t TILE = 512;
    float scale[TILE];
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t start = 0; start < plane; start += TILE) {
            const int64_t width = std::min(TILE, plane - start);
            for (int64_t j = 0; j < width; ++j) scale[j] = 0.0f;
            for (int64_t c = 0; c < channels; ++c) {
                const float* row = in + (b * channels + c) * plane + start;
                for (int64_t j = 0; j < width; ++j) scale[j] += row[j] * row[j];
            }
            for (int64_t j = 0; j < width; ++j) scale[j] = 1.0f / std::sqrt(scale[j] / channels + (float)eps);
            for (int64_t c = 0; c < channels; ++c) {
                const int64_t at = (b * channels + c) * plane + start;
                for (int64_t j = 0; j < width; ++j) to[at + j] = in[at + j] * scale[j];
            }
        }
    }
    return out;
}
"""

extension = load_inline(
    name="level1_36",
    cpp_sources=SOURCE,
    functions=["rms_norm"],
    extra_cflags=["-O3", "-march=native", "-ffast-math"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return extension.rms_norm(x, self.eps)
