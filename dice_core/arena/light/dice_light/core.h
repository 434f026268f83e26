// Errors, checks, scalar types, devices and array references of the light tier.
//
// Everything lives in namespace dice_light and is made visible under torch::, at:: and c10:: by using-directives,
// so that no symbol of ours can be confused with one of libtorch's. What need not be a template is defined in
// support_*.cpp, which the build farm compiles once and links into every module; streams and the rarer standard
// headers are left out because each costs every kernel a noticeable part of a second under nvcc (the farm adds a
// standard header when a source names something of it).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <dice_light/shim.h>

#ifdef DICE_LIGHT_REDUCED_FLOAT
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>
#endif

namespace dice_light {

// ---- errors -------------------------------------------------------------------------------------------------

class Error : public std::exception {
 public:
  explicit Error(std::string message);
  ~Error() override;
  const char* what() const noexcept override;
  const std::string& msg() const { return message_; }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }

 private:
  std::string message_;
};
class IndexError : public Error { using Error::Error; };
class ValueError : public Error { using Error::Error; };
class TypeError : public Error { using Error::Error; };
class NotImplementedError : public Error { using Error::Error; };

enum class ScalarType : int8_t;
class TypeMeta;
class Device;
template <typename T>
class ArrayRef;

namespace detail {

// Text as an ostream would print it, without the cost of <sstream>.
void append(std::string& out, const char* text);
void append(std::string& out, const std::string& text);
void append(std::string& out, char value);
void append(std::string& out, long long value);
void append(std::string& out, unsigned long long value);
void append(std::string& out, double value);
void append(std::string& out, const void* value);
void append(std::string& out, ScalarType value);
void append(std::string& out, const TypeMeta& value);
void append(std::string& out, const Device& value);
template <typename T>
void append(std::string& out, const ArrayRef<T>& values);
template <typename T>
void append(std::string& out, const std::vector<T>& values);

template <typename T>
void append_any(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, char> || std::is_same_v<T, signed char> || std::is_same_v<T, unsigned char>)
    append(out, static_cast<char>(value));
  else if constexpr (std::is_floating_point_v<T>) append(out, static_cast<double>(value));
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) append(out, static_cast<long long>(value));
  else if constexpr (std::is_integral_v<T>) append(out, static_cast<unsigned long long>(value));
  else if constexpr (std::is_enum_v<T> && std::is_convertible_v<T, long long>)  // an enum of C, cublasStatus_t say
    append(out, static_cast<long long>(value));
  else append(out, value);
}
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  (append_any(out, parts), ...);
  return out;
}

[[noreturn]] void fail(const char* function, const char* file, int line, const std::string& message);
/// Turns a failed ABI call into a C++ exception carrying torch's own message where the build offers it.
[[noreturn]] void fail_abi(const char* what);
inline void check_abi(abi::Error error, const char* what) {
  if (__builtin_expect(error != 0, 0)) fail_abi(what);
}

}  // namespace detail

#define DICE_LIGHT_ABI(call) ::dice_light::detail::check_abi(::dice_light::abi::call, #call)

// ---- scalar types -------------------------------------------------------------------------------------------

// The numbers are torch's; bind.h compares them with the running libtorch when a module is loaded.
enum class ScalarType : int8_t {
  Byte = 0, Char = 1, Short = 2, Int = 3, Long = 4, Half = 5, Float = 6, Double = 7,
  ComplexHalf = 8, ComplexFloat = 9, ComplexDouble = 10, Bool = 11, BFloat16 = 15,
  Undefined = 127,
};
using Dtype = ScalarType;

constexpr ScalarType kByte = ScalarType::Byte, kUInt8 = ScalarType::Byte;
constexpr ScalarType kChar = ScalarType::Char, kInt8 = ScalarType::Char;
constexpr ScalarType kShort = ScalarType::Short, kInt16 = ScalarType::Short;
constexpr ScalarType kInt = ScalarType::Int, kInt32 = ScalarType::Int;
constexpr ScalarType kLong = ScalarType::Long, kInt64 = ScalarType::Long;
constexpr ScalarType kHalf = ScalarType::Half, kFloat16 = ScalarType::Half;
constexpr ScalarType kFloat = ScalarType::Float, kFloat32 = ScalarType::Float;
constexpr ScalarType kDouble = ScalarType::Double, kFloat64 = ScalarType::Double;
constexpr ScalarType kBool = ScalarType::Bool;
constexpr ScalarType kBFloat16 = ScalarType::BFloat16;
constexpr ScalarType kComplexFloat = ScalarType::ComplexFloat, kComplexDouble = ScalarType::ComplexDouble;

const char* toString(ScalarType type);
inline size_t elementSize(ScalarType type) {
  return abi::aoti_torch_dtype_element_size(static_cast<int32_t>(type));
}
constexpr bool isFloatingType(ScalarType type) {
  return type == kHalf || type == kFloat || type == kDouble || type == kBFloat16;
}
constexpr bool isIntegralType(ScalarType type, bool include_bool) {
  return type == kByte || type == kChar || type == kShort || type == kInt || type == kLong ||
      (include_bool && type == kBool);
}

// Only the types that ATen instantiates data_ptr<T> for; anything else must not compile here.
template <typename T>
struct CppTypeToScalarType;
namespace impl {
template <ScalarType type>
struct ScalarTypeToCPPType;
template <ScalarType type>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<type>::type;
}  // namespace impl
#define DICE_LIGHT_SCALAR(cpp, name)                                                             \
  template <>                                                                                    \
  struct CppTypeToScalarType<cpp> : std::integral_constant<ScalarType, ScalarType::name> {};      \
  namespace impl {                                                                               \
  template <>                                                                                    \
  struct ScalarTypeToCPPType<ScalarType::name> {                                                 \
    using type = cpp;                                                                            \
  };                                                                                             \
  }
DICE_LIGHT_SCALAR(uint8_t, Byte)
DICE_LIGHT_SCALAR(int8_t, Char)
DICE_LIGHT_SCALAR(int16_t, Short)
DICE_LIGHT_SCALAR(int, Int)
DICE_LIGHT_SCALAR(int64_t, Long)
DICE_LIGHT_SCALAR(float, Float)
DICE_LIGHT_SCALAR(double, Double)
DICE_LIGHT_SCALAR(bool, Bool)
#ifdef DICE_LIGHT_REDUCED_FLOAT
using c10::BFloat16;
using c10::Half;
DICE_LIGHT_SCALAR(c10::Half, Half)
DICE_LIGHT_SCALAR(c10::BFloat16, BFloat16)
#endif

/// What Tensor::dtype() returns: compares with a ScalarType, prints like torch's caffe2::TypeMeta.
class TypeMeta {
 public:
  TypeMeta() = default;
  explicit TypeMeta(ScalarType type) : type_(type) {}
  ScalarType toScalarType() const { return type_; }
  size_t itemsize() const { return elementSize(type_); }
  std::string name() const;
  friend bool operator==(TypeMeta a, TypeMeta b) { return a.type_ == b.type_; }
  friend bool operator!=(TypeMeta a, TypeMeta b) { return a.type_ != b.type_; }
  friend bool operator==(TypeMeta a, ScalarType b) { return a.type_ == b; }
  friend bool operator!=(TypeMeta a, ScalarType b) { return a.type_ != b; }
  friend bool operator==(ScalarType a, TypeMeta b) { return a == b.type_; }
  friend bool operator!=(ScalarType a, TypeMeta b) { return a != b.type_; }

 private:
  ScalarType type_ = ScalarType::Undefined;
};
inline ScalarType typeMetaToScalarType(TypeMeta meta) { return meta.toScalarType(); }

// ---- devices, layouts -----------------------------------------------------------------------------------------

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
constexpr DeviceType kCPU = DeviceType::CPU;
constexpr DeviceType kCUDA = DeviceType::CUDA;
using DeviceIndex = int8_t;

class Device {
 public:
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}  // NOLINT: implicit as in c10
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ != -1; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_cpu() const { return type_ == kCPU; }
  std::string str() const;
  friend bool operator==(const Device& a, const Device& b) { return a.type_ == b.type_ && a.index_ == b.index_; }
  friend bool operator!=(const Device& a, const Device& b) { return !(a == b); }

 private:
  DeviceType type_;
  DeviceIndex index_;
};

enum class Layout : int8_t { Strided = 0 };
constexpr Layout kStrided = Layout::Strided;
enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };

// ---- array references and optionals ------------------------------------------------------------------------------

using std::nullopt;
using std::nullopt_t;
using std::optional;
using std::make_optional;

/// A borrowed run of values, with the implicit conversions that c10::ArrayRef offers.
template <typename T>
class ArrayRef {
 public:
  using value_type = T;
  using iterator = const T*;
  using const_iterator = const T*;
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}  // NOLINT: implicit as in c10
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  template <typename A>
  ArrayRef(const std::vector<T, A>& values) : data_(values.data()), size_(values.size()) {}  // NOLINT
  template <size_t N>
  constexpr ArrayRef(const std::array<T, N>& values) : data_(values.data()), size_(N) {}  // NOLINT
  template <size_t N>
  constexpr ArrayRef(const T (&values)[N]) : data_(values), size_(N) {}  // NOLINT
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
  constexpr ArrayRef(const std::initializer_list<T>& values)  // NOLINT: lives to the end of the call
      : data_(values.begin() == values.end() ? nullptr : values.begin()), size_(values.size()) {}
#pragma GCC diagnostic pop

  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](size_t i) const { return data_[i]; }
  const T& at(size_t i) const {
    if (i >= size_) throw IndexError(detail::concat("ArrayRef: invalid index ", i, " for a length of ", size_));
    return data_[i];
  }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  ArrayRef slice(size_t start, size_t count) const {
    if (start + count > size_) throw IndexError("ArrayRef: invalid slice");
    return ArrayRef(data_ + start, count);
  }
  ArrayRef slice(size_t start) const { return slice(start, size_ - start); }
  bool equals(ArrayRef other) const { return size_ == other.size_ && std::equal(begin(), end(), other.begin()); }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  friend bool operator==(ArrayRef a, ArrayRef b) { return a.equals(b); }
  friend bool operator!=(ArrayRef a, ArrayRef b) { return !a.equals(b); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
using IntArrayRef = ArrayRef<int64_t>;

namespace detail {
template <typename T>
void append(std::string& out, const ArrayRef<T>& values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i != 0) out += ", ";
    append_any(out, values[i]);
  }
  out += ']';
}
template <typename T>
void append(std::string& out, const std::vector<T>& values) { append(out, ArrayRef<T>(values)); }
}  // namespace detail

// For sources that print: templates over the stream, so that <ostream> is needed only where it is used.
#define DICE_LIGHT_PRINTS(...)                                                                              \
  template <typename Traits>                                                                                \
  std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, __VA_ARGS__ value) {  \
    return out << detail::concat(value);                                                                    \
  }
DICE_LIGHT_PRINTS(ScalarType)
DICE_LIGHT_PRINTS(const TypeMeta&)
DICE_LIGHT_PRINTS(const Device&)
DICE_LIGHT_PRINTS(const IntArrayRef&)

}  // namespace dice_light

namespace torch { using namespace dice_light; }
namespace at { using namespace dice_light; }
namespace c10 { using namespace dice_light; }

// ---- check macros -----------------------------------------------------------------------------------------------

#define DICE_LIGHT_UNLIKELY(x) __builtin_expect(static_cast<bool>(x), 0)
// torch's header-only types bring these themselves.
#ifndef C10_LIKELY
#define C10_LIKELY(x) (__builtin_expect(static_cast<bool>(x), 1))
#define C10_UNLIKELY(x) (__builtin_expect(static_cast<bool>(x), 0))
#endif
#ifndef C10_UNUSED
#define C10_UNUSED __attribute__((__unused__))
#endif
#ifndef C10_RESTRICT
#define C10_RESTRICT __restrict
#endif
#ifndef C10_HOST_DEVICE
#ifdef __CUDACC__
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#else
#define C10_HOST_DEVICE
#define C10_DEVICE
#define C10_HOST
#endif
#endif

#define DICE_LIGHT_CHECK_AS(type, cond, ...)                                                             \
  do {                                                                                                   \
    if (DICE_LIGHT_UNLIKELY(!(cond))) {                                                                  \
      const std::string dice_light_text = ::dice_light::detail::concat(__VA_ARGS__);                     \
      throw type(dice_light_text.empty() ? "Expected " #cond " to be true, but got false."               \
                                         : dice_light_text);                                             \
    }                                                                                                    \
  } while (false)
#define TORCH_CHECK(cond, ...) DICE_LIGHT_CHECK_AS(::dice_light::Error, cond, __VA_ARGS__)
#define TORCH_CHECK_INDEX(cond, ...) DICE_LIGHT_CHECK_AS(::dice_light::IndexError, cond, __VA_ARGS__)
#define TORCH_CHECK_VALUE(cond, ...) DICE_LIGHT_CHECK_AS(::dice_light::ValueError, cond, __VA_ARGS__)
#define TORCH_CHECK_TYPE(cond, ...) DICE_LIGHT_CHECK_AS(::dice_light::TypeError, cond, __VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(cond, ...) \
  DICE_LIGHT_CHECK_AS(::dice_light::NotImplementedError, cond, __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(cond, ...) TORCH_CHECK(cond, __VA_ARGS__)
#define AT_ASSERT(cond) TORCH_CHECK(cond)
#define AT_ASSERTM(cond, ...) TORCH_CHECK(cond, __VA_ARGS__)
#define AT_ERROR(...) throw ::dice_light::Error(::dice_light::detail::concat(__VA_ARGS__))
#define TORCH_WARN(...) \
  ::dice_light::abi::aoti_torch_warn(__func__, __FILE__, __LINE__, ::dice_light::detail::concat(__VA_ARGS__).c_str())

// torch::Tensor has no ordering, so the two sides are always plain values; they are printed when the check fails.
#define DICE_LIGHT_COMPARE(a, b, op)                                                                      \
  do {                                                                                                    \
    const auto& dice_light_a = (a);                                                                       \
    const auto& dice_light_b = (b);                                                                       \
    if (DICE_LIGHT_UNLIKELY(!(dice_light_a op dice_light_b)))                                             \
      ::dice_light::detail::fail(                                                                         \
          __func__, __FILE__, __LINE__,                                                                   \
          ::dice_light::detail::concat(                                                                   \
              "Check failed: " #a " " #op " " #b " (", dice_light_a, " vs. ", dice_light_b, ")"));        \
  } while (false)
#define TORCH_CHECK_EQ(a, b) DICE_LIGHT_COMPARE(a, b, ==)
#define TORCH_CHECK_NE(a, b) DICE_LIGHT_COMPARE(a, b, !=)
#define TORCH_CHECK_LT(a, b) DICE_LIGHT_COMPARE(a, b, <)
#define TORCH_CHECK_LE(a, b) DICE_LIGHT_COMPARE(a, b, <=)
#define TORCH_CHECK_GT(a, b) DICE_LIGHT_COMPARE(a, b, >)
#define TORCH_CHECK_GE(a, b) DICE_LIGHT_COMPARE(a, b, >=)
