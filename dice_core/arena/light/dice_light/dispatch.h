// AT_DISPATCH_* of the light tier: a switch over the scalar type with scalar_t bound in each branch.
#pragma once

#include <dice_light/tensor.h>

namespace dice_light {
namespace detail {
inline ScalarType scalar_type(ScalarType type) { return type; }
inline ScalarType scalar_type(const DeprecatedTypeProperties& type) { return type.scalarType(); }
}  // namespace detail
}  // namespace dice_light

#define DICE_LIGHT_CASE(kind, ...)                                                            \
  case ::dice_light::ScalarType::kind: {                                                      \
    using scalar_t [[maybe_unused]] =                                                         \
        ::dice_light::impl::ScalarTypeToCPPTypeT<::dice_light::ScalarType::kind>;             \
    return __VA_ARGS__();                                                                     \
  }
#define DICE_LIGHT_CASE_OF(kind, ...)                                                         \
  case kind: {                                                                                \
    using scalar_t [[maybe_unused]] = ::dice_light::impl::ScalarTypeToCPPTypeT<kind>;         \
    return __VA_ARGS__();                                                                     \
  }
#define DICE_LIGHT_SWITCH(TYPE, NAME, CASES)                                                           \
  [&] {                                                                                                \
    const auto& the_type = TYPE;                                                                       \
    const ::dice_light::ScalarType dice_light_type = ::dice_light::detail::scalar_type(the_type);      \
    switch (dice_light_type) {                                                                         \
      CASES                                                                                            \
      default:                                                                                         \
        throw ::dice_light::NotImplementedError(::dice_light::detail::concat(                          \
            '"', NAME, "\" not implemented for '", dice_light_type, "'"));                             \
    }                                                                                                  \
  }()

#define DICE_LIGHT_FLOATING(...) DICE_LIGHT_CASE(Double, __VA_ARGS__) DICE_LIGHT_CASE(Float, __VA_ARGS__)
#define DICE_LIGHT_INTEGRAL(...)                                                                       \
  DICE_LIGHT_CASE(Byte, __VA_ARGS__) DICE_LIGHT_CASE(Char, __VA_ARGS__) DICE_LIGHT_CASE(Int, __VA_ARGS__) \
  DICE_LIGHT_CASE(Long, __VA_ARGS__) DICE_LIGHT_CASE(Short, __VA_ARGS__)

#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) DICE_LIGHT_SWITCH(TYPE, NAME, DICE_LIGHT_FLOATING(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
  DICE_LIGHT_SWITCH(TYPE, NAME, DICE_LIGHT_FLOATING(__VA_ARGS__) DICE_LIGHT_CASE(Half, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(T1, TYPE, NAME, ...) \
  DICE_LIGHT_SWITCH(TYPE, NAME, DICE_LIGHT_FLOATING(__VA_ARGS__) DICE_LIGHT_CASE_OF(T1, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(T1, T2, TYPE, NAME, ...)                            \
  DICE_LIGHT_SWITCH(TYPE, NAME,                                                             \
                    DICE_LIGHT_FLOATING(__VA_ARGS__) DICE_LIGHT_CASE_OF(T1, __VA_ARGS__)    \
                    DICE_LIGHT_CASE_OF(T2, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) DICE_LIGHT_SWITCH(TYPE, NAME, DICE_LIGHT_INTEGRAL(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) \
  DICE_LIGHT_SWITCH(TYPE, NAME, DICE_LIGHT_INTEGRAL(__VA_ARGS__) DICE_LIGHT_FLOATING(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(T1, TYPE, NAME, ...)                                      \
  DICE_LIGHT_SWITCH(TYPE, NAME,                                                             \
                    DICE_LIGHT_INTEGRAL(__VA_ARGS__) DICE_LIGHT_FLOATING(__VA_ARGS__)       \
                    DICE_LIGHT_CASE_OF(T1, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(T1, T2, TYPE, NAME, ...)                                 \
  DICE_LIGHT_SWITCH(TYPE, NAME,                                                             \
                    DICE_LIGHT_INTEGRAL(__VA_ARGS__) DICE_LIGHT_FLOATING(__VA_ARGS__)       \
                    DICE_LIGHT_CASE_OF(T1, __VA_ARGS__) DICE_LIGHT_CASE_OF(T2, __VA_ARGS__))
