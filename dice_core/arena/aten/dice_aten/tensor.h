// The middle tier: torch's own at::Tensor and exactly the operator headers that a source names (given by the builder
// with -include), without the C++ frontend, autograd's factories and pybind11, which are most of the full header.
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <optional>
#include <tuple>
#include <vector>

namespace torch {
using namespace at;  // NOLINT: as torch's own header does
using std::nullopt;
using std::optional;
using Dtype = at::ScalarType;
constexpr auto kUInt8 = at::kByte, kInt8 = at::kChar, kInt16 = at::kShort, kInt32 = at::kInt, kInt64 = at::kLong;
constexpr auto kFloat16 = at::kHalf, kFloat32 = at::kFloat, kFloat64 = at::kDouble;

#ifdef DICE_ATEN_TENSOR
/// torch::tensor of whole numbers: made on the host and moved, kLong unless the options say otherwise. A single number
/// makes a 0-dimensional tensor in torch and would make a list here, so it does not compile.
inline Tensor tensor(IntArrayRef values, const TensorOptions& options = {}) {
  Tensor host = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::memcpy(host.data_ptr<int64_t>(), values.data(), values.size() * sizeof(int64_t));
  return host.to(options.has_dtype() ? options : options.dtype(at::kLong));
}
template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
Tensor tensor(T value, const TensorOptions& options = {}) = delete;
#endif
}  // namespace torch

// The names that the binding uses (dice_light/bind.h is shared by both tiers).
namespace dice_light {
using at::IntArrayRef;
using at::Tensor;
using std::nullopt_t;
}  // namespace dice_light
