// Tensors, text and errors of the light tier: what is no template, compiled once by the build farm and linked into
// every module.

#include <dice_light/tensor.h>

namespace dice_light {

// ---- errors and text ----------------------------------------------------------------------------------------------

Error::Error(std::string message) : message_(std::move(message)) {}
Error::~Error() = default;
const char* Error::what() const noexcept { return message_.c_str(); }

const char* toString(ScalarType type) {
  switch (type) {
    case ScalarType::Byte: return "Byte";
    case ScalarType::Char: return "Char";
    case ScalarType::Short: return "Short";
    case ScalarType::Int: return "Int";
    case ScalarType::Long: return "Long";
    case ScalarType::Half: return "Half";
    case ScalarType::Float: return "Float";
    case ScalarType::Double: return "Double";
    case ScalarType::ComplexHalf: return "ComplexHalf";
    case ScalarType::ComplexFloat: return "ComplexFloat";
    case ScalarType::ComplexDouble: return "ComplexDouble";
    case ScalarType::Bool: return "Bool";
    case ScalarType::BFloat16: return "BFloat16";
    case ScalarType::Undefined: return "Undefined";
  }
  return "UNKNOWN_SCALAR";
}
std::string TypeMeta::name() const {
  switch (type_) {
    case ScalarType::Byte: return "unsigned char";
    case ScalarType::Char: return "signed char";
    case ScalarType::Short: return "short";
    case ScalarType::Int: return "int";
    case ScalarType::Long: return "long";
    case ScalarType::Half: return "c10::Half";
    case ScalarType::Float: return "float";
    case ScalarType::Double: return "double";
    case ScalarType::Bool: return "bool";
    case ScalarType::BFloat16: return "c10::BFloat16";
    default: return toString(type_);
  }
}
std::string Device::str() const {
  std::string text = type_ == kCPU ? "cpu" : type_ == kCUDA ? "cuda" : "other";
  return has_index() ? text + ":" + std::to_string(static_cast<int>(index_)) : text;
}

namespace detail {

// ostream's rules: six significant digits for a float, a number for a bool.
void append(std::string& out, const char* text) { out += text == nullptr ? "(null)" : text; }
void append(std::string& out, const std::string& text) { out += text; }
void append(std::string& out, char value) { out += value; }
void append(std::string& out, long long value) { out += std::to_string(value); }
void append(std::string& out, unsigned long long value) { out += std::to_string(value); }
void append(std::string& out, double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%g", value);
  out += text;
}
void append(std::string& out, const void* value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%p", value);
  out += text;
}
void append(std::string& out, ScalarType value) { out += toString(value); }
void append(std::string& out, const TypeMeta& value) { out += value.name(); }
void append(std::string& out, const Device& value) { out += value.str(); }

void fail(const char* function, const char* file, int line, const std::string& message) {
  throw Error(concat(message, " (", function, " at ", file, ":", line, ")"));
}
void fail_abi(const char* what) {
  std::string message = concat(what, " failed");
  if (abi::torch_exception_get_what_without_backtrace != nullptr) {
    const char* text = abi::torch_exception_get_what_without_backtrace();
    if (text != nullptr && *text != '\0') message = text;
  }
  throw Error(message);
}

// ---- the dispatcher -------------------------------------------------------------------------------------------------


using abi::StackValue;

template <typename T>
StackValue raw(T value) {
  static_assert(sizeof(T) <= sizeof(StackValue) && std::is_trivially_copyable_v<T>, "not a plain stack value");
  StackValue result = 0;
  std::memcpy(&result, &value, sizeof(T));
  return result;
}
StackValue pack(bool value) { return raw(value); }
StackValue pack(int64_t value) { return raw(value); }
StackValue pack(ScalarType value) { return raw(static_cast<int32_t>(value)); }
StackValue pack(Device value) {
  // Index in the low half, type in the high half: the ABI's own layout.
  const auto index = static_cast<uint32_t>(static_cast<int32_t>(value.index()));
  return (static_cast<uint64_t>(static_cast<uint32_t>(value.type())) << 32) | index;
}
StackValue pack(MemoryFormat value) {
  switch (value) {
    case MemoryFormat::Contiguous: return raw(abi::aoti_torch_memory_format_contiguous_format());
    case MemoryFormat::Preserve: return raw(abi::aoti_torch_memory_format_preserve_format());
    case MemoryFormat::ChannelsLast: return raw(abi::aoti_torch_memory_format_channels_last());
    case MemoryFormat::ChannelsLast3d: return raw(abi::aoti_torch_memory_format_channels_last_3d());
  }
  throw Error("unknown memory format");
}
StackValue pack(const Tensor& value) {
  AtenTensorHandle copy = nullptr;  // the callee takes over this reference
  DICE_LIGHT_ABI(aoti_torch_new_tensor_handle(value.handle(), &copy));
  return raw(copy);
}
StackValue pack(IntArrayRef values) {
  abi::ListHandle list = nullptr;
  DICE_LIGHT_ABI(torch_new_list_reserve_size(values.size(), &list));
  for (int64_t value : values) DICE_LIGHT_ABI(torch_list_push_back(list, raw(value)));
  return raw(list);
}
StackValue pack(nullopt_t) { return 0; }
template <typename T>
StackValue pack(const optional<T>& value) {
  // An optional travels as a pointer to a heap cell, which the callee deletes.
  return value ? raw(new StackValue(pack(*value))) : StackValue{0};
}

/// Calls `aten::op` with its complete argument list and returns its single tensor.
template <typename... Args>
Tensor call(const char* op, const char* overload, const Args&... args) {
  StackValue stack[sizeof...(Args)] = {pack(args)...};
  check_abi(abi::torch_call_dispatcher(op, overload, stack, abi::aoti_torch_abi_version()), op);
  AtenTensorHandle result = nullptr;
  std::memcpy(&result, &stack[0], sizeof(result));
  return Tensor::steal(result);
}

/// Strides of a dense row-major tensor; a size of 1 or 0 counts as 1, as in torch.
bool has_plain_strides(const Tensor& tensor) {
  const IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (strides[i] != expected) return false;
    expected *= std::max<int64_t>(sizes[i], 1);
  }
  return true;
}
using NewTensor = decltype(&abi::aoti_torch_aten_new_empty);
/// A row-major tensor through new_empty or new_zeros; `self` only lends its dispatch key.
Tensor make_plain(NewTensor maker, const Tensor& self, IntArrayRef size, ScalarType type, Device device) {
  auto dtype = static_cast<int32_t>(type);
  auto place = static_cast<int32_t>(device.type());
  AtenTensorHandle out = nullptr;
  check_abi(maker(self.handle(), size.data(), static_cast<int64_t>(size.size()), &dtype, nullptr, &place,
                  device.index(), nullptr, &out),
            "a tensor factory");
  return Tensor::steal(out);
}
/// Lends its dispatch key to factories that have no tensor at hand; never freed, so that exit order cannot matter.
const Tensor& anchor() {
  static const Tensor* const tensor =
      new Tensor(call("aten::empty", "memory_format", IntArrayRef(int64_t{0}), optional<ScalarType>(kFloat), nullopt,
                      optional<Device>(Device(kCPU)), nullopt, nullopt));
  return *tensor;
}
Tensor finish(Tensor tensor, const TensorOptions& options) {
  if (options.requires_grad()) DICE_LIGHT_ABI(torch_set_requires_grad(tensor.handle(), true));
  return tensor;
}
/// A factory with the argument list (size, dtype, layout, device, pin_memory).
Tensor make(const char* op, IntArrayRef size, const TensorOptions& o) {
  return finish(call(op, "", size, o.dtype_opt(), nullopt, o.device_opt(), nullopt), o);
}
/// A factory with the argument list (self, dtype, layout, device, pin_memory, memory_format).
Tensor make_like(const char* op, const Tensor& self, const TensorOptions& o, optional<MemoryFormat> format) {
  return finish(call(op, "", self, o.dtype_opt(), nullopt, o.device_opt(), nullopt, format), o);
}

}  // namespace detail

// ---- Tensor -----------------------------------------------------------------------------------------------------------

Tensor::Tensor(const Tensor& other) {
  if (other.handle_ != nullptr) DICE_LIGHT_ABI(aoti_torch_new_tensor_handle(other.handle_, &handle_));
}
void Scalar::fail_overflow() { throw Error("value cannot be converted to the type that was asked for without overflow"); }
Scalar Tensor::item() const {
  const ScalarType type = scalar_type();
  if (isFloatingType(type)) return Scalar(to(kDouble).item<double>());
  if (isIntegralType(type, true)) return Scalar(to(kLong).item<int64_t>());
  throw Error("item(): the light tier has no complex numbers");
}
void Tensor::fail_undefined() { throw Error("the tensor is undefined"); }
bool Tensor::defined() const {
  if (handle_ == nullptr) return false;
  bool value = false;
  DICE_LIGHT_ABI(aoti_torch_is_defined(handle_, &value));
  return value;
}
int64_t Tensor::dim() const { int64_t n = 0; DICE_LIGHT_ABI(aoti_torch_get_dim(handle(), &n)); return n; }
int64_t Tensor::numel() const { int64_t n = 0; DICE_LIGHT_ABI(aoti_torch_get_numel(handle(), &n)); return n; }
IntArrayRef Tensor::sizes() const {
  int64_t* values = nullptr;
  DICE_LIGHT_ABI(aoti_torch_get_sizes(handle(), &values));
  return IntArrayRef(values, static_cast<size_t>(dim()));
}
IntArrayRef Tensor::strides() const {
  int64_t* values = nullptr;
  DICE_LIGHT_ABI(aoti_torch_get_strides(handle(), &values));
  return IntArrayRef(values, static_cast<size_t>(dim()));
}
int64_t Tensor::size(int64_t d) const {
  int64_t value = 0;
  DICE_LIGHT_ABI(aoti_torch_get_size(handle(), d, &value));
  return value;
}
int64_t Tensor::stride(int64_t d) const {
  int64_t value = 0;
  DICE_LIGHT_ABI(aoti_torch_get_stride(handle(), d, &value));
  return value;
}
int64_t Tensor::storage_offset() const {
  int64_t value = 0;
  DICE_LIGHT_ABI(aoti_torch_get_storage_offset(handle(), &value));
  return value;
}
bool Tensor::is_contiguous() const {
  bool value = false;
  DICE_LIGHT_ABI(aoti_torch_is_contiguous(handle(), &value));
  return value;
}
ScalarType Tensor::scalar_type() const {
  int32_t value = 0;
  DICE_LIGHT_ABI(aoti_torch_get_dtype(handle(), &value));
  return static_cast<ScalarType>(value);
}
Device Tensor::device() const {
  int32_t type = 0, index = 0;
  DICE_LIGHT_ABI(aoti_torch_get_device_type(handle(), &type));
  DICE_LIGHT_ABI(aoti_torch_get_device_index(handle(), &index));
  return Device(static_cast<DeviceType>(type), static_cast<DeviceIndex>(index));
}
void* Tensor::data_ptr() const {
  void* data = nullptr;
  DICE_LIGHT_ABI(aoti_torch_get_data_ptr(handle(), &data));
  return data;
}
void* Tensor::data_ptr_as(ScalarType wanted) const {
  const ScalarType found = scalar_type();
  if (DICE_LIGHT_UNLIKELY(found != wanted))
    throw Error(detail::concat("expected scalar type ", wanted, " but found ", found));
  return data_ptr();
}
Tensor& Tensor::fill_with(double value) {
  DICE_LIGHT_ABI(aoti_torch_aten_fill__Scalar(handle(), value));
  return *this;
}
Tensor& Tensor::fill_with(int64_t value) {
  constexpr int64_t exact = int64_t{1} << 53;
  if (value >= -exact && value <= exact) return fill_with(static_cast<double>(value));
  AtenTensorHandle cell = nullptr;  // a zero-dimensional tensor keeps every digit
  DICE_LIGHT_ABI(aoti_torch_scalar_to_tensor_int64(value, &cell));
  detail::call("aten::fill_", "Tensor", *this, steal(cell));
  return *this;
}


Tensor Tensor::contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::Contiguous && is_contiguous()) return *this;
  return detail::call("aten::contiguous", "", *this, format);
}
Tensor Tensor::clone() const {
  AtenTensorHandle out = nullptr;
  DICE_LIGHT_ABI(aoti_torch_clone(handle(), &out));
  return steal(out);
}
Tensor Tensor::detach() const { return detail::call("aten::detach", "", *this); }
Tensor Tensor::view(IntArrayRef sizes) const { return detail::call("aten::view", "", *this, sizes); }
Tensor Tensor::reshape(IntArrayRef sizes) const { return detail::call("aten::reshape", "", *this, sizes); }
Tensor Tensor::expand(IntArrayRef sizes, bool implicit) const {
  return detail::call("aten::expand", "", *this, sizes, implicit);
}
Tensor Tensor::permute(IntArrayRef dims) const { return detail::call("aten::permute", "", *this, dims); }
Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim) const {
  return detail::call("aten::flatten", "using_ints", *this, start_dim, end_dim);
}
Tensor Tensor::unsqueeze(int64_t dim) const { return detail::call("aten::unsqueeze", "", *this, dim); }
Tensor Tensor::squeeze() const { return detail::call("aten::squeeze", "", *this); }
Tensor Tensor::squeeze(int64_t dim) const { return detail::call("aten::squeeze", "dim", *this, dim); }
Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const {
  return detail::call("aten::transpose", "int", *this, dim0, dim1);
}
Tensor Tensor::t() const { return detail::call("aten::t", "", *this); }
Tensor Tensor::select(int64_t dim, int64_t index) const {
  return detail::call("aten::select", "int", *this, dim, index);
}
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  return detail::call("aten::narrow", "", *this, dim, start, length);
}
Tensor Tensor::to(const TensorOptions& o, bool non_blocking, bool copy) const {
  return detail::call("aten::to", "dtype_layout", *this, o.dtype_opt(), nullopt, o.device_opt(), nullopt, non_blocking,
                      copy, nullopt);
}
Tensor& Tensor::zero_() { DICE_LIGHT_ABI(aoti_torch_zero_(handle())); return *this; }
Tensor& Tensor::copy_(const Tensor& source, bool non_blocking) {
  detail::call("aten::copy_", "", *this, source, non_blocking);
  return *this;
}
Tensor empty(IntArrayRef size, const TensorOptions& o, optional<MemoryFormat> format) {
  if (o.has_dtype() && !format) {
    return detail::finish(
        detail::make_plain(abi::aoti_torch_aten_new_empty, detail::anchor(), size, *o.dtype_opt(), o.device()), o);
  }
  return detail::finish(
      detail::call("aten::empty", "memory_format", size, o.dtype_opt(), nullopt, o.device_opt(), nullopt, format), o);
}
Tensor zeros(IntArrayRef size, const TensorOptions& o) {
  if (!o.has_dtype()) return detail::make("aten::zeros", size, o);
  return detail::finish(
      detail::make_plain(abi::aoti_torch_aten_new_zeros, detail::anchor(), size, *o.dtype_opt(), o.device()), o);
}
Tensor ones(IntArrayRef size, const TensorOptions& o) { return detail::make("aten::ones", size, o); }
Tensor empty_like(const Tensor& self, const TensorOptions& o, optional<MemoryFormat> format) {
  if (!format && detail::has_plain_strides(self)) {
    return detail::finish(detail::make_plain(abi::aoti_torch_aten_new_empty, self, self.sizes(),
                                             o.dtype_opt().value_or(self.scalar_type()),
                                             o.device_opt().value_or(self.device())),
                          o);
  }
  return detail::make_like("aten::empty_like", self, o, format);
}
Tensor zeros_like(const Tensor& self, const TensorOptions& o, optional<MemoryFormat> format) {
  if (!format && detail::has_plain_strides(self)) {
    return detail::finish(detail::make_plain(abi::aoti_torch_aten_new_zeros, self, self.sizes(),
                                             o.dtype_opt().value_or(self.scalar_type()),
                                             o.device_opt().value_or(self.device())),
                          o);
  }
  return detail::make_like("aten::zeros_like", self, o, format);
}
Tensor ones_like(const Tensor& self, const TensorOptions& o, optional<MemoryFormat> format) {
  return detail::make_like("aten::ones_like", self, o, format);
}
Tensor empty_strided(IntArrayRef size, IntArrayRef stride, const TensorOptions& o) {
  return detail::finish(
      detail::call("aten::empty_strided", "", size, stride, o.dtype_opt(), nullopt, o.device_opt(), nullopt), o);
}
Tensor tensor(IntArrayRef values, const TensorOptions& o) {
  Tensor host = empty(IntArrayRef(static_cast<int64_t>(values.size())), TensorOptions(kLong).device(Device(kCPU)));
  std::copy(values.begin(), values.end(), host.data_ptr<int64_t>());
  return detail::finish(host.to(o.has_dtype() ? o : o.dtype(kLong)), o);
}

int get_num_threads() {
  uint32_t count = 1;
  DICE_LIGHT_ABI(torch_get_num_threads(&count));
  return static_cast<int>(count);
}
int get_thread_num() {
  uint32_t index = 0;
  DICE_LIGHT_ABI(torch_get_thread_idx(&index));
  return static_cast<int>(index);
}

}  // namespace dice_light
