// A small stand-in for the part of pybind11 that kernels use: PYBIND11_MODULE, m.def, py::arg.
//
// Functions become CPython fastcall builtins; argument conversion follows pybind11's rules (an int is refused a
// float, a float accepts an int, a bool accepts whatever has a truth value, None only for optionals).
// Tensors cross through torch._C._aoti, whose capsules carry an owned at::Tensor*: the one door between Python and
// the stable C ABI that needs no torch header.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#ifdef DICE_ATEN
#include <dice_aten/tensor.h>
#else
#include <dice_light/dispatch.h>
#endif

namespace pybind11 {

namespace detail {

using dice_light::Tensor;

struct PythonError {};  // thrown when a Python exception is already set

// An owned reference.
class Ref {
 public:
  explicit Ref(PyObject* object = nullptr) : object_(object) {}
  Ref(Ref&& other) noexcept : object_(other.release()) {}
  Ref& operator=(Ref&& other) noexcept { std::swap(object_, other.object_); return *this; }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { PyObject* object = object_; object_ = nullptr; return object; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};
PyObject* checked(PyObject* object);

// Conversions that are no templates (support_binding.cpp). They return false, with no Python exception left set, when the
// object does not convert.
bool load_tensor(PyObject* object, Tensor& value);
bool load_bool(PyObject* object, bool& value);
bool load_signed(PyObject* object, long long& value);
bool load_unsigned(PyObject* object, unsigned long long& value);
bool load_double(PyObject* object, double& value);
bool load_text(PyObject* object, std::string& value);
/// A sequence that is no text, as a list or tuple; an empty Ref when it is none.
Ref load_items(PyObject* object);
PyObject* cast_tensor(const Tensor& tensor);

template <typename T, typename = void>
struct Caster;

template <>
struct Caster<Tensor> {
  Tensor value;
  bool load(PyObject* object) { return load_tensor(object, value); }
  static PyObject* cast(const Tensor& v) { return cast_tensor(v); }
};
template <>
struct Caster<bool> {
  bool value = false;
  bool load(PyObject* object) { return load_bool(object, value); }
  static PyObject* cast(bool v) { return PyBool_FromLong(v); }
};
template <typename T>
struct Caster<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>>> {
  using Wide = std::conditional_t<std::is_unsigned_v<T>, unsigned long long, long long>;
  T value = 0;
  bool load(PyObject* object) {
    Wide wide = 0;
    if constexpr (std::is_unsigned_v<T>) {
      if (!load_unsigned(object, wide)) return false;
    } else if (!load_signed(object, wide)) {
      return false;
    }
    value = static_cast<T>(wide);
    return static_cast<Wide>(value) == wide;  // out of range does not convert
  }
  static PyObject* cast(T v) {
    if constexpr (std::is_unsigned_v<T>) return PyLong_FromUnsignedLongLong(v);
    else return PyLong_FromLongLong(v);
  }
};
template <typename T>
struct Caster<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  T value = 0;
  bool load(PyObject* object) {
    double wide = 0;
    if (!load_double(object, wide)) return false;
    value = static_cast<T>(wide);
    return true;
  }
  static PyObject* cast(T v) { return PyFloat_FromDouble(static_cast<double>(v)); }
};
template <>
struct Caster<std::string> {
  std::string value;
  bool load(PyObject* object) { return load_text(object, value); }
  static PyObject* cast(const std::string& v) {
    return PyUnicode_DecodeUTF8(v.data(), static_cast<Py_ssize_t>(v.size()), nullptr);
  }
};

template <typename T>
struct Caster<std::vector<T>> {
  std::vector<T> value;
  bool load(PyObject* object) {
    Ref items = load_items(object);
    if (!items) return false;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.get());
    value.clear();
    value.reserve(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      Caster<T> item;
      if (!item.load(PySequence_Fast_GET_ITEM(items.get(), i))) return false;
      value.push_back(std::move(item.value));
    }
    return true;
  }
  static PyObject* cast(const std::vector<T>& v) {
    Ref list(checked(PyList_New(static_cast<Py_ssize_t>(v.size()))));
    for (size_t i = 0; i < v.size(); ++i)
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), checked(Caster<T>::cast(v[i])));
    return list.release();
  }
};

// at::IntArrayRef borrows, so the caster keeps the values.
template <>
struct Caster<dice_light::IntArrayRef> {
  std::vector<int64_t> storage;
  dice_light::IntArrayRef value;
  bool load(PyObject* object) {
    if (!PyTuple_Check(object) && !PyList_Check(object)) return false;
    Caster<std::vector<int64_t>> items;
    if (!items.load(object)) return false;
    storage = std::move(items.value);
    value = storage;
    return true;
  }
  static PyObject* cast(dice_light::IntArrayRef v) {
    return PyList_AsTuple(Ref(checked(Caster<std::vector<int64_t>>::cast(v.vec()))).get());
  }
};

template <typename T>
struct Caster<std::optional<T>> {
  std::optional<T> value;
  bool load(PyObject* object) {
    if (object == Py_None) { value.reset(); return true; }
    Caster<T> inner;
    if (!inner.load(object)) return false;
    value = std::move(inner.value);
    return true;
  }
  static PyObject* cast(const std::optional<T>& v) {
    if (!v) Py_RETURN_NONE;
    return Caster<T>::cast(*v);
  }
};

template <typename Tuple, size_t... I>
PyObject* cast_tuple(const Tuple& v, std::index_sequence<I...>) {
  Ref tuple(checked(PyTuple_New(sizeof...(I))));
  (PyTuple_SET_ITEM(tuple.get(), I,
                    checked(Caster<std::decay_t<std::tuple_element_t<I, Tuple>>>::cast(std::get<I>(v)))), ...);
  return tuple.release();
}
template <typename... T>
struct Caster<std::tuple<T...>> {
  static PyObject* cast(const std::tuple<T...>& v) { return cast_tuple(v, std::index_sequence_for<T...>()); }
};
template <typename A, typename B>
struct Caster<std::pair<A, B>> {
  static PyObject* cast(const std::pair<A, B>& v) { return cast_tuple(v, std::index_sequence<0, 1>()); }
};

template <typename T>
using Stored = Caster<std::decay_t<T>>;

// Hands the caster's value to a parameter of type T: lvalue references bind to it, values and rvalues take it over.
template <typename T>
decltype(auto) pass(Stored<T>& caster) {
  if constexpr (std::is_lvalue_reference_v<T>) return (caster.value);
  else return std::move(caster.value);
}

}  // namespace detail

struct none {};

/// A named argument, with a default when one was assigned.
struct arg {
  explicit constexpr arg(const char* argument_name) : name(argument_name) {}
  template <typename T>
  arg operator=(T&& default_value) const {  // NOLINT: pybind11's own spelling
    arg copy(*this);
    copy.value = detail::checked(detail::Stored<T>::cast(std::forward<T>(default_value)));  // lives with the module
    return copy;
  }
  arg operator=(none) const { arg copy(*this); copy.value = Py_None; return copy; }
  arg operator=(dice_light::nullopt_t) const { return *this = none(); }
  const char* name;
  PyObject* value = nullptr;
};
namespace literals {
constexpr arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals

/// Lets other Python threads run for its lifetime.
struct gil_scoped_release {
  gil_scoped_release() : state_(PyEval_SaveThread()) {}
  gil_scoped_release(const gil_scoped_release&) = delete;
  ~gil_scoped_release() { PyEval_RestoreThread(state_); }

 private:
  PyThreadState* state_;
};

namespace detail {

// One C++ function behind a Python name. `call` returns null with no Python exception set when the arguments do not
// convert.
struct Overload {
  size_t arity = 0;
  std::vector<arg> args;  // empty, or one for each parameter
  PyObject* (*call)(const void* state, PyObject* const* arguments) = nullptr;
  const void* state = nullptr;
};
struct Function;

template <typename F, typename R, typename... A, size_t... I>
PyObject* invoke(const F& function, PyObject* const* arguments, std::index_sequence<I...>) {
  (void)arguments;
  std::tuple<Stored<A>...> casters;
  if (!(std::get<I>(casters).load(arguments[I]) && ...)) return nullptr;
  if constexpr (std::is_void_v<R>) {
    function(pass<A>(std::get<I>(casters))...);
    Py_RETURN_NONE;
  } else {
    return checked(Stored<R>::cast(function(pass<A>(std::get<I>(casters))...)));
  }
}

template <typename F, typename R, typename... A>
Overload make_overload(F function, R (*)(A...)) {
  Overload overload;
  overload.arity = sizeof...(A);
  overload.state = new F(std::move(function));  // lives as long as the process, like the module's code
  overload.call = [](const void* state, PyObject* const* arguments) {
    return invoke<F, R, A...>(*static_cast<const F*>(state), arguments, std::index_sequence_for<A...>());
  };
  return overload;
}

template <typename T>
struct Signature;
template <typename C, typename R, typename... A>
struct Signature<R (C::*)(A...) const> { using type = R (*)(A...); };
template <typename C, typename R, typename... A>
struct Signature<R (C::*)(A...)> { using type = R (*)(A...); };
template <typename R, typename... A>
Overload overload_of(R (*function)(A...)) { return make_overload(function, function); }
template <typename F, typename Call = decltype(&F::operator())>
Overload overload_of(const F& function) {
  return make_overload(function, static_cast<typename Signature<Call>::type>(nullptr));
}

struct Extras {
  const char* doc = nullptr;
  std::vector<arg> args;
};
inline void apply(Extras& extras, const char* doc) { extras.doc = doc; }
inline void apply(Extras& extras, const arg& argument) { extras.args.push_back(argument); }

}  // namespace detail

/// The module under construction.
class module_ {
 public:
  explicit module_(PyObject* module) : module_object_(module) {}

  template <typename F, typename... Extra>
  module_& def(const char* name, F&& function, const Extra&... extra) {
    detail::Extras extras;
    (detail::apply(extras, extra), ...);
    add(name, detail::overload_of(std::forward<F>(function)), std::move(extras));
    return *this;
  }
  class Doc {
   public:
    explicit Doc(PyObject* module) : module_object_(module) {}
    Doc& operator=(const char* text);

   private:
    PyObject* module_object_;
  };
  Doc doc() { return Doc(module_object_); }

 private:
  void add(const char* name, detail::Overload overload, detail::Extras extras);
  PyObject* module_object_;
  std::vector<detail::Function*> functions_;
};
using module = module_;

namespace detail {
/// Makes the module and runs `body` on it; null with a Python exception set when that fails.
PyObject* init(PyModuleDef* definition, const char* name, void (*body)(module_&));
}  // namespace detail
}  // namespace pybind11

namespace torch {
/// torch's wrapper translates torch errors; entry() above already does.
template <typename F>
constexpr F wrap_pybind_function(F function) { return function; }
}  // namespace torch

namespace py = pybind11;

#define DICE_LIGHT_JOIN_(a, b) a##b
#define DICE_LIGHT_JOIN(a, b) DICE_LIGHT_JOIN_(a, b)
#define DICE_LIGHT_TEXT_(x) #x
#define DICE_LIGHT_TEXT(x) DICE_LIGHT_TEXT_(x)
#define PYBIND11_MODULE(name, variable)                                                                \
  static void DICE_LIGHT_JOIN(dice_light_body_, name)(::pybind11::module_&);                           \
  extern "C" __attribute__((visibility("default"))) PyObject* DICE_LIGHT_JOIN(PyInit_, name)() {       \
    static PyModuleDef definition;                                                                     \
    return ::pybind11::detail::init(&definition, DICE_LIGHT_TEXT(name),                                \
                                    &DICE_LIGHT_JOIN(dice_light_body_, name));                         \
  }                                                                                                    \
  static void DICE_LIGHT_JOIN(dice_light_body_, name)(::pybind11::module_ & variable)
