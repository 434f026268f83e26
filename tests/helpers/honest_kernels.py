"""The one extension that honest candidates share (so that it is compiled once), and how a candidate is put together."""

from __future__ import annotations

SOURCE = r'''
#include <torch/extension.h>
#include <cmath>
#include <vector>

template <typename T, typename F>
torch::Tensor each(const torch::Tensor& given, F work) {
  auto x = given.contiguous();
  auto y = torch::empty_like(x);
  const T* a = x.data_ptr<T>();
  T* b = y.data_ptr<T>();
  for (int64_t i = 0; i < x.numel(); ++i) b[i] = work(a[i]);
  return y;
}

torch::Tensor tanh_of(torch::Tensor x) {
  if (x.scalar_type() == torch::kDouble) return each<double>(x, [](double v) { return std::tanh(v); });
  if (x.scalar_type() == torch::kFloat) return each<float>(x, [](float v) { return std::tanh(v); });
  return each<float>(x.to(torch::kFloat), [](float v) { return std::tanh(v); }).to(x.scalar_type());
}
torch::Tensor affine(torch::Tensor x, double a, double b) {
  return each<float>(x, [=](float v) { return float(a) * v + float(b); });
}
torch::Tensor twice_int(torch::Tensor x) { return each<int64_t>(x, [](int64_t v) { return 2 * v; }); }
torch::Tensor invert(torch::Tensor x) { return each<bool>(x, [](bool v) { return !v; }); }
void relu_(torch::Tensor x) {
  float* a = x.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) a[i] = a[i] > 0.0f ? a[i] : 0.0f;
}
void tanh_into(torch::Tensor x, torch::Tensor y) {
  const float* a = x.data_ptr<float>();
  float* b = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) b[i] = std::tanh(a[i]);
}
torch::Tensor add(torch::Tensor x, torch::Tensor y) {
  TORCH_CHECK(x.sizes() == y.sizes(), "sizes differ");
  auto u = x.contiguous(), v = y.contiguous();
  auto z = torch::empty_like(u);
  const float *a = u.data_ptr<float>(), *b = v.data_ptr<float>();
  float* c = z.data_ptr<float>();
  for (int64_t i = 0; i < z.numel(); ++i) c[i] = a[i] + b[i];
  return z;
}
torch::Tensor where(torch::Tensor mask, torch::Tensor x, torch::Tensor y) {
  auto z = torch::empty_like(x);
  const bool* m = mask.data_ptr<bool>();
  const float *a = x.data_ptr<float>(), *b = y.data_ptr<float>();
  float* c = z.data_ptr<float>();
  for (int64_t i = 0; i < z.numel(); ++i) c[i] = m[i] ? a[i] : b[i];
  return z;
}
torch::Tensor linear(torch::Tensor x, torch::Tensor w) {
  const int64_t n = x.size(0), k = x.size(1), m = w.size(0);
  auto y = torch::zeros({n, m}, x.options());
  const float *a = x.data_ptr<float>(), *b = w.data_ptr<float>();
  float* c = y.data_ptr<float>();
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) {
      double sum = 0.0;
      for (int64_t l = 0; l < k; ++l) sum += double(a[i * k + l]) * b[j * k + l];
      c[i * m + j] = float(sum);
    }
  return y;
}
torch::Tensor softmax(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int64_t n = x.size(0), m = x.size(1);
  const float* a = x.data_ptr<float>();
  float* b = y.data_ptr<float>();
  for (int64_t i = 0; i < n; ++i) {
    float top = -INFINITY;
    double sum = 0.0;
    for (int64_t j = 0; j < m; ++j) top = std::fmax(top, a[i * m + j]);
    for (int64_t j = 0; j < m; ++j) sum += b[i * m + j] = std::exp(a[i * m + j] - top);
    for (int64_t j = 0; j < m; ++j) b[i * m + j] = float(b[i * m + j] / sum);
  }
  return y;
}
torch::Tensor total(torch::Tensor x) {
  double sum = 0.0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += x.data_ptr<float>()[i];
  auto y = torch::empty({}, x.options());
  y.data_ptr<float>()[0] = float(sum);
  return y;
}
torch::Tensor strided_tanh(torch::Tensor x) {
  auto y = torch::empty({x.size(0), x.size(1)}, x.options());
  const float* a = x.data_ptr<float>();
  float* b = y.data_ptr<float>();
  for (int64_t i = 0; i < x.size(0); ++i)
    for (int64_t j = 0; j < x.size(1); ++j) b[i * x.size(1) + j] = std::tanh(a[i * x.stride(0) + j * x.stride(1)]);
  return y;
}
std::vector<torch::Tensor> signs(torch::Tensor x) {
  return {each<float>(x, [](float v) { return v > 0 ? v : 0.0f; }),
          each<float>(x, [](float v) { return v < 0 ? v : 0.0f; })};
}
torch::Tensor normalise(torch::Tensor x, torch::Tensor mean, torch::Tensor var, double eps) {
  auto y = torch::empty_like(x);
  const int64_t m = x.size(1);
  const float *a = x.data_ptr<float>(), *u = mean.data_ptr<float>(), *v = var.data_ptr<float>();
  float* b = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) b[i] = (a[i] - u[i % m]) / std::sqrt(v[i % m] + float(eps));
  return y;
}
'''
FUNCTIONS = ["tanh_of", "affine", "twice_int", "invert", "relu_", "tanh_into", "add", "where", "linear", "softmax",
             "total", "strided_tanh", "signs", "normalise"]
LOAD = f"load_inline(name='ext', cpp_sources=SOURCE, functions={FUNCTIONS})"
HEAD = f"""import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''{SOURCE}'''
"""


def indented(text: str, by: int) -> str:
    """`text` with each line moved right."""
    return "\n".join(" " * by + line if line else line for line in text.splitlines())


def kernel(
    forward: str, init: str = "", *, arguments: str = "x", parameters: str = "*a, **k", top: str = "",
    load: str = f"ext = {LOAD}",
) -> str:
    """A candidate on the shared extension: bodies of `forward` and `__init__`, and what stands before the class."""
    parts = [HEAD, load, top, "class ModelNew(nn.Module):"]
    if init:
        parts += [f"    def __init__(self, {parameters}):", "        super().__init__()", indented(init, 8)]
    return "\n".join([*parts, f"    def forward(self, {arguments}):", indented(forward, 8), ""])


def problem(
    forward: str, inputs: str, init: str = "", *, arguments: str = "x", parameters: str = "", init_inputs: str = "[]",
    top: str = "",
) -> str:
    """A reference with these bodies."""
    parts = ["import torch", "import torch.nn as nn", "import torch.nn.functional as F", top, "class Model(nn.Module):"]
    if init:
        parts += [f"    def __init__(self, {parameters}):", "        super().__init__()", indented(init, 8)]
    parts += [f"    def forward(self, {arguments}):", indented(forward, 8)]
    parts += [f"def get_inputs():\n    return {inputs}", f"def get_init_inputs():\n    return {init_inputs}", ""]
    return "\n".join(parts)
