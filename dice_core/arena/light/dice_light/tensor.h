// torch::Tensor, TensorOptions and the factory functions of the light tier, over the stable C ABI.
//
// Every operation that allocates or makes a view goes through torch's dispatcher, so that autograd, deterministic
// memory filling and dispatch hooks see it exactly as they would see a call from a kernel built with torch's own
// headers.
#pragma once

#include <dice_light/core.h>

namespace dice_light {

/// dtype, device and requires_grad of a tensor to be made; unset fields mean torch's defaults.
class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType type) : dtype_(type) {}                              // NOLINT: implicit as in c10
  TensorOptions(TypeMeta type) : dtype_(type.toScalarType()) {}                 // NOLINT
  TensorOptions(Device device) : device_(device) {}                             // NOLINT
  TensorOptions(DeviceType device) : device_(Device(device)) {}                 // NOLINT
  TensorOptions(Layout) {}                                                      // NOLINT
  TensorOptions dtype(ScalarType type) const { auto copy = *this; copy.dtype_ = type; return copy; }
  TensorOptions dtype(TypeMeta type) const { return dtype(type.toScalarType()); }
  template <typename T>
  TensorOptions dtype() const { return dtype(CppTypeToScalarType<T>::value); }
  TensorOptions device(Device device) const { auto copy = *this; copy.device_ = device; return copy; }
  TensorOptions device(DeviceType type, DeviceIndex index) const { return device(Device(type, index)); }
  TensorOptions layout(Layout) const { return *this; }
  TensorOptions requires_grad(bool value) const { auto copy = *this; copy.requires_grad_ = value; return copy; }

  TypeMeta dtype() const {
    if (!dtype_) throw Error("TensorOptions: the light tier cannot ask for torch's default dtype");
    return TypeMeta(*dtype_);
  }
  Device device() const { return device_.value_or(Device(kCPU)); }
  bool requires_grad() const { return requires_grad_.value_or(false); }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }
  optional<ScalarType> dtype_opt() const { return dtype_; }
  optional<Device> device_opt() const { return device_; }

 private:
  optional<ScalarType> dtype_;
  optional<Device> device_;
  optional<bool> requires_grad_;
};
inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions dtype(TypeMeta type) { return TensorOptions(type); }
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions layout(Layout layout) { return TensorOptions(layout); }
inline TensorOptions requires_grad(bool value = true) { return TensorOptions().requires_grad(value); }

class Tensor;

// What the deprecated Tensor::type() offers to the CHECK_CUDA macros and dispatch macros of older kernels.
class DeprecatedTypeProperties {
 public:
  DeprecatedTypeProperties(ScalarType type, Device device) : type_(type), device_(device) {}
  ScalarType scalarType() const { return type_; }
  bool is_cuda() const { return device_.is_cuda(); }

 private:
  ScalarType type_;
  Device device_;
};

/// What Tensor::item() without a type gives: a number that is taken out as the type one wants, refused when it overflows.
class Scalar {
 public:
  explicit Scalar(double value) : real_(value), whole_(0), is_whole_(false) {}
  explicit Scalar(int64_t value) : real_(static_cast<double>(value)), whole_(value), is_whole_(true) {}
  bool isFloatingPoint() const { return !is_whole_; }
  int toInt() const { return to<int>(); }
  int64_t toLong() const { return to<int64_t>(); }
  float toFloat() const { return to<float>(); }
  double toDouble() const { return to<double>(); }
  template <typename T>
  T to() const {
    static_assert(std::is_same_v<T, int> || std::is_same_v<T, int64_t> || std::is_floating_point_v<T>, "not offered");
    if constexpr (std::is_floating_point_v<T>) {
      if (std::abs(real_) > std::numeric_limits<T>::max() && !std::isinf(real_)) fail_overflow();
      return static_cast<T>(is_whole_ ? static_cast<T>(whole_) : real_);
    } else {
      if (is_whole_ && static_cast<int64_t>(static_cast<T>(whole_)) == whole_) return static_cast<T>(whole_);
      constexpr double bound = sizeof(T) == 8 ? 0x1p63 : 0x1p31;
      if (is_whole_ || !(real_ >= -bound && real_ < bound)) fail_overflow();
      return static_cast<T>(real_);
    }
  }

 private:
  [[noreturn]] static void fail_overflow();
  double real_;
  int64_t whole_;
  bool is_whole_;
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other);
  Tensor(Tensor&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  Tensor& operator=(const Tensor& other) {
    Tensor copy(other);
    std::swap(handle_, copy.handle_);
    return *this;
  }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor taken(std::move(other));
    std::swap(handle_, taken.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) abi::aoti_torch_delete_tensor_object(handle_);
  }

  /// Takes over a handle that the caller owns.
  static Tensor steal(AtenTensorHandle handle) { Tensor result; result.handle_ = handle; return result; }
  AtenTensorHandle handle() const {
    if (__builtin_expect(handle_ == nullptr, 0)) fail_undefined();
    return handle_;
  }
  void reset() { *this = Tensor(); }
  bool defined() const;

  // ---- geometry
  int64_t dim() const;
  int64_t ndimension() const { return dim(); }
  int64_t numel() const;
  IntArrayRef sizes() const;
  IntArrayRef strides() const;
  int64_t size(int64_t d) const;
  int64_t stride(int64_t d) const;
  int64_t storage_offset() const;
  bool is_contiguous() const;

  // ---- type and place
  ScalarType scalar_type() const;
  TypeMeta dtype() const { return TypeMeta(scalar_type()); }
  Device device() const;
  int64_t get_device() const { return device().index(); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  size_t element_size() const { return elementSize(scalar_type()); }
  size_t itemsize() const { return element_size(); }
  size_t nbytes() const { return static_cast<size_t>(numel()) * element_size(); }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }
  DeprecatedTypeProperties type() const { return DeprecatedTypeProperties(scalar_type(), device()); }

  // ---- data
  void* data_ptr() const;
  const void* const_data_ptr() const { return data_ptr(); }
  void* mutable_data_ptr() const { return data_ptr(); }
  template <typename T>
  T* data_ptr() const { return static_cast<T*>(data_ptr_as(CppTypeToScalarType<T>::value)); }
  template <typename T>
  const std::remove_const_t<T>* const_data_ptr() const { return data_ptr<std::remove_const_t<T>>(); }
  template <typename T>
  T* mutable_data_ptr() const { return data_ptr<T>(); }
  template <typename T>
  T item() const;
  Scalar item() const;

  // ---- views and copies
  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  Tensor clone() const;
  Tensor detach() const;
  Tensor view(IntArrayRef sizes) const;
  Tensor view_as(const Tensor& other) const { return view(other.sizes()); }
  Tensor reshape(IntArrayRef sizes) const;
  Tensor reshape_as(const Tensor& other) const { return reshape(other.sizes()); }
  Tensor expand(IntArrayRef sizes, bool implicit = false) const;
  Tensor expand_as(const Tensor& other) const { return expand(other.sizes()); }
  Tensor permute(IntArrayRef dims) const;
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t dim) const;
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor t() const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor to(const TensorOptions& options, bool non_blocking = false, bool copy = false) const;
  Tensor to(ScalarType type, bool non_blocking = false, bool copy = false) const {
    return to(TensorOptions(type), non_blocking, copy);
  }
  Tensor to(Device device, ScalarType type, bool non_blocking = false, bool copy = false) const {
    return to(TensorOptions(type).device(device), non_blocking, copy);
  }

  // ---- in-place
  Tensor& zero_();
  Tensor& copy_(const Tensor& source, bool non_blocking = false);
  template <typename T>
  Tensor& fill_(T value);

 private:
  [[noreturn]] static void fail_undefined();
  void* data_ptr_as(ScalarType wanted) const;
  Tensor& fill_with(double value);
  Tensor& fill_with(int64_t value);
  AtenTensorHandle handle_ = nullptr;
};

using TensorList = ArrayRef<Tensor>;

template <typename T>
Tensor& Tensor::fill_(T value) {
  static_assert(std::is_arithmetic_v<T>, "fill_ takes a number");
  if constexpr (std::is_integral_v<T>) return fill_with(static_cast<int64_t>(value));
  else return fill_with(static_cast<double>(value));
}

#define DICE_LIGHT_ITEM(cpp, suffix)                                 \
  template <>                                                        \
  inline cpp Tensor::item<cpp>() const {                             \
    cpp value{};                                                     \
    DICE_LIGHT_ABI(aoti_torch_item_##suffix(handle(), &value));      \
    return value;                                                    \
  }
DICE_LIGHT_ITEM(float, float32)
DICE_LIGHT_ITEM(double, float64)
DICE_LIGHT_ITEM(uint8_t, uint8)
DICE_LIGHT_ITEM(int8_t, int8)
DICE_LIGHT_ITEM(int16_t, int16)
DICE_LIGHT_ITEM(int, int32)
DICE_LIGHT_ITEM(int64_t, int64)
DICE_LIGHT_ITEM(bool, bool)

// ---- factories --------------------------------------------------------------------------------------------------

Tensor empty(IntArrayRef size, const TensorOptions& options = {}, optional<MemoryFormat> format = nullopt);
Tensor zeros(IntArrayRef size, const TensorOptions& options = {});
Tensor ones(IntArrayRef size, const TensorOptions& options = {});
Tensor empty_like(const Tensor& self, const TensorOptions& options = {}, optional<MemoryFormat> format = nullopt);
Tensor zeros_like(const Tensor& self, const TensorOptions& options = {}, optional<MemoryFormat> format = nullopt);
Tensor ones_like(const Tensor& self, const TensorOptions& options = {}, optional<MemoryFormat> format = nullopt);
Tensor empty_strided(IntArrayRef size, IntArrayRef stride, const TensorOptions& options = {});
template <typename T>
Tensor full(IntArrayRef size, T value, TensorOptions o = {}) {
  // Without a dtype, torch takes it from the value; floating values take the default dtype, which empty() knows.
  if (!o.has_dtype() && std::is_same_v<T, bool>) o = o.dtype(kBool);
  else if (!o.has_dtype() && std::is_integral_v<T>) o = o.dtype(kLong);
  Tensor result = empty(size, TensorOptions(o).requires_grad(false));
  result.fill_(value);
  if (o.requires_grad()) DICE_LIGHT_ABI(torch_set_requires_grad(result.handle(), true));
  return result;
}
template <typename T>
Tensor full_like(const Tensor& self, T value, const TensorOptions& o = {}) {
  Tensor result = empty_like(self, TensorOptions(o).requires_grad(false));
  result.fill_(value);
  if (o.requires_grad()) DICE_LIGHT_ABI(torch_set_requires_grad(result.handle(), true));
  return result;
}
/// torch::tensor of whole numbers (kLong unless the options say otherwise) or of one number; other lists are not here.
Tensor tensor(IntArrayRef values, const TensorOptions& options = {});
template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
Tensor tensor(T value, const TensorOptions& options = {}) { return full(IntArrayRef(), value, options); }

// ---- CPU threads --------------------------------------------------------------------------------------------------

int get_num_threads();
int get_thread_num();
template <typename F>
void parallel_for(int64_t begin, int64_t end, int64_t grain_size, const F& body) {
  // The callback may not throw across the C ABI: the first exception is kept and thrown again afterwards.
  struct Context { const F* body; std::exception_ptr error; bool taken; };
  Context context{&body, nullptr, false};
  const auto trampoline = [](int64_t from, int64_t to, void* opaque) {
    auto* shared = static_cast<Context*>(opaque);
    try {
      (*shared->body)(from, to);
    } catch (...) {
      if (!__atomic_test_and_set(&shared->taken, __ATOMIC_ACQ_REL)) shared->error = std::current_exception();
    }
  };
  const abi::Error code = abi::torch_parallel_for(begin, end, grain_size, trampoline, &context);
  if (context.error) std::rethrow_exception(context.error);
  detail::check_abi(code, "parallel_for");
}

}  // namespace dice_light
