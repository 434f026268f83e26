// The binding of the light and the aten tier: what is no template, compiled once for each by the build farm and linked
// into every module.

#include <dice_light/bind.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#ifdef DICE_ATEN
namespace errors = c10;
#else
namespace errors = dice_light;
#endif

namespace pybind11 {
namespace detail {

PyObject* checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return object;
}

// The Python side of the tensor door, looked up once a module.
struct TensorDoor {
  PyObject* tensor_type;
  PyObject* to_capsule;
  PyObject* from_capsule;
  static const TensorDoor& get() {
    static const TensorDoor door = open();
    return door;
  }
  static TensorDoor open() {
    Ref torch(checked(PyImport_ImportModule("torch")));
    Ref native(checked(PyObject_GetAttrString(torch.get(), "_C")));
    Ref aoti(checked(PyObject_GetAttrString(native.get(), "_aoti")));
    Ref type(checked(PyObject_GetAttrString(torch.get(), "Tensor")));
    Ref to(checked(PyObject_GetAttrString(aoti.get(), "unsafe_alloc_void_ptr_from_tensor")));
    Ref from(checked(PyObject_GetAttrString(aoti.get(), "alloc_tensor_by_stealing_from_void_ptr")));
    return TensorDoor{type.release(), to.release(), from.release()};
  }
};

bool load_tensor(PyObject* object, Tensor& value) {
  const TensorDoor& door = TensorDoor::get();
  if (reinterpret_cast<PyObject*>(Py_TYPE(object)) != door.tensor_type) {
    const int is_tensor = PyObject_IsInstance(object, door.tensor_type);
    if (is_tensor != 1) { PyErr_Clear(); return false; }
  }
  Ref capsule(PyObject_CallOneArg(door.to_capsule, object));
  void* pointer = capsule ? PyCapsule_GetPointer(capsule.get(), nullptr) : nullptr;
  if (pointer == nullptr) { PyErr_Clear(); return false; }
#ifdef DICE_ATEN
  auto* owned = static_cast<Tensor*>(pointer);  // the capsule has no destructor: ours now
  value = std::move(*owned);
  delete owned;
#else
  value = Tensor::steal(static_cast<AtenTensorHandle>(pointer));
#endif
  return true;
}
PyObject* cast_tensor(const Tensor& tensor) {
  if (!tensor.defined()) Py_RETURN_NONE;
#ifdef DICE_ATEN
  void* handle = const_cast<Tensor*>(&tensor);
#else
  void* handle = tensor.handle();
#endif
  Ref capsule(checked(PyCapsule_New(handle, nullptr, nullptr)));
  // Despite the function's name the heap object stays ours: torch copies the tensor out of it.
  return checked(PyObject_CallOneArg(TensorDoor::get().from_capsule, capsule.get()));
}

bool load_bool(PyObject* object, bool& value) {
  if (object == Py_True || object == Py_False || object == Py_None) { value = object == Py_True; return true; }
  const PyNumberMethods* number = Py_TYPE(object)->tp_as_number;
  if (number == nullptr || number->nb_bool == nullptr) return false;
  const int truth = number->nb_bool(object);
  if (truth != 0 && truth != 1) { PyErr_Clear(); return false; }
  value = truth == 1;
  return true;
}
/// The object as a Python int: a float is refused, anything with __index__ or __int__ is taken.
Ref load_int(PyObject* object) {
  if (PyFloat_Check(object)) return Ref();
  Ref number(PyNumber_Index(object));
  if (!number && PyNumber_Check(object)) {
    PyErr_Clear();
    number = Ref(PyNumber_Long(object));
  }
  if (!number) PyErr_Clear();
  return number;
}
bool load_signed(PyObject* object, long long& value) {
  Ref number = load_int(object);
  if (!number) return false;
  value = PyLong_AsLongLong(number.get());
  if (PyErr_Occurred() != nullptr) { PyErr_Clear(); return false; }
  return true;
}
bool load_unsigned(PyObject* object, unsigned long long& value) {
  Ref number = load_int(object);
  if (!number) return false;
  value = PyLong_AsUnsignedLongLong(number.get());
  if (PyErr_Occurred() != nullptr) { PyErr_Clear(); return false; }
  return true;
}
bool load_double(PyObject* object, double& value) {
  value = PyFloat_AsDouble(object);
  if (PyErr_Occurred() == nullptr) return true;
  PyErr_Clear();
  Ref number(PyNumber_Check(object) ? PyNumber_Float(object) : nullptr);
  if (!number) { PyErr_Clear(); return false; }
  value = PyFloat_AS_DOUBLE(number.get());
  return true;
}
bool load_text(PyObject* object, std::string& value) {
  if (PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == nullptr) { PyErr_Clear(); return false; }
    value.assign(text, static_cast<size_t>(size));
    return true;
  }
  if (!PyBytes_Check(object)) return false;
  value.assign(PyBytes_AS_STRING(object), static_cast<size_t>(PyBytes_GET_SIZE(object)));
  return true;
}
Ref load_items(PyObject* object) {
  if (!PySequence_Check(object) || PyUnicode_Check(object) || PyBytes_Check(object)) return Ref();
  Ref items(PySequence_Fast(object, ""));
  if (!items) PyErr_Clear();
  return items;
}

// A Python builtin and the C++ functions behind it, in the order of their definition.
struct Function {
  std::string name;
  std::string doc;
  std::vector<Overload> overloads;
  PyMethodDef method{};
};

static PyObject* raise(PyObject* type, const char* message) {
  PyErr_SetString(type, message);
  return nullptr;
}

/// Lays positional and keyword arguments out in parameter order; false when they do not fit this overload.
static bool arrange(const Overload& overload, PyObject* const* given, Py_ssize_t positional, PyObject* keywords,
                    std::vector<PyObject*>& out) {
  const auto count = static_cast<size_t>(positional);
  if (count > overload.arity) return false;
  out.assign(overload.arity, nullptr);
  std::copy(given, given + count, out.begin());
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t k = 0; k < named; ++k) {
    bool placed = false;
    for (size_t i = 0; i < overload.args.size() && !placed; ++i) {
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(keywords, k), overload.args[i].name) != 0) continue;
      if (out[i] != nullptr) return false;
      out[i] = given[positional + k];
      placed = true;
    }
    if (!placed) return false;
  }
  for (size_t i = 0; i < overload.arity; ++i) {
    if (out[i] == nullptr && i < overload.args.size()) out[i] = overload.args[i].value;
    if (out[i] == nullptr) return false;
  }
  return true;
}

static PyObject* entry(PyObject* self, PyObject* const* given, Py_ssize_t positional, PyObject* keywords) {
  auto* function = static_cast<Function*>(PyCapsule_GetPointer(self, nullptr));
  if (function == nullptr) return nullptr;
  try {
    std::vector<PyObject*> arguments;
    for (const Overload& overload : function->overloads) {
      if (!arrange(overload, given, positional, keywords, arguments)) continue;
      PyObject* result = overload.call(overload.state, arguments.data());
      if (result != nullptr || PyErr_Occurred() != nullptr) return result;
    }
    const std::string text = function->name + "(): incompatible function arguments";
    return raise(PyExc_TypeError, text.c_str());
  } catch (const PythonError&) {
    if (PyErr_Occurred() == nullptr) return raise(PyExc_SystemError, "a Python call failed without an exception");
    return nullptr;
  } catch (const errors::IndexError& e) { return raise(PyExc_IndexError, e.what_without_backtrace());
  } catch (const errors::ValueError& e) { return raise(PyExc_ValueError, e.what_without_backtrace());
  } catch (const errors::TypeError& e) { return raise(PyExc_TypeError, e.what_without_backtrace());
  } catch (const errors::NotImplementedError& e) {
    return raise(PyExc_NotImplementedError, e.what_without_backtrace());
  } catch (const errors::Error& e) { return raise(PyExc_RuntimeError, e.what_without_backtrace());
  } catch (const std::bad_alloc& e) { return raise(PyExc_MemoryError, e.what());
  } catch (const std::exception& e) { return raise(PyExc_RuntimeError, e.what());
  } catch (...) { return raise(PyExc_RuntimeError, "the kernel threw an exception of unknown type"); }
}

#ifdef DICE_ATEN
static void check_numbers() {}  // torch's own headers were read
#else
/// Refuses to load where the running torch numbers its types differently from the light header.
static void check_numbers() {
  namespace abi = dice_light::abi;
  using dice_light::ScalarType;
  const std::pair<int32_t, ScalarType> types[] = {
      {abi::aoti_torch_dtype_uint8(), ScalarType::Byte},     {abi::aoti_torch_dtype_int8(), ScalarType::Char},
      {abi::aoti_torch_dtype_int16(), ScalarType::Short},    {abi::aoti_torch_dtype_int32(), ScalarType::Int},
      {abi::aoti_torch_dtype_int64(), ScalarType::Long},     {abi::aoti_torch_dtype_float16(), ScalarType::Half},
      {abi::aoti_torch_dtype_float32(), ScalarType::Float},  {abi::aoti_torch_dtype_float64(), ScalarType::Double},
      {abi::aoti_torch_dtype_bool(), ScalarType::Bool},      {abi::aoti_torch_dtype_bfloat16(), ScalarType::BFloat16}};
  bool same = abi::aoti_torch_device_type_cpu() == static_cast<int32_t>(dice_light::kCPU) &&
      abi::aoti_torch_device_type_cuda() == static_cast<int32_t>(dice_light::kCUDA);
  for (const auto& [number, type] : types) same = same && number == static_cast<int32_t>(type);
  if (!same) throw std::runtime_error("this torch numbers its scalar or device types differently");
}
#endif

PyObject* init(PyModuleDef* definition, const char* name, void (*body)(module_&)) {
  *definition = PyModuleDef{PyModuleDef_HEAD_INIT, name, nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  Ref object(PyModule_Create(definition));
  if (!object) return nullptr;
  try {
    check_numbers();
    TensorDoor::get();
    module_ module(object.get());
    body(module);
    return object.release();
  } catch (const PythonError&) {
    return nullptr;
  } catch (const std::exception& e) {
    return raise(PyExc_ImportError, e.what());
  }
}

}  // namespace detail

void module_::add(const char* name, detail::Overload overload, detail::Extras extras) {
  overload.args = std::move(extras.args);
  if (!overload.args.empty() && overload.args.size() != overload.arity)
    throw std::runtime_error(std::string(name) + ": the number of py::arg differs from the number of parameters");
  detail::Function* function = nullptr;
  for (detail::Function* known : functions_)
    if (known->name == name) function = known;
  if (function == nullptr) {
    function = new detail::Function();  // lives as long as the process, like the module's code
    function->name = name;
    function->method.ml_name = function->name.c_str();
    function->method.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&detail::entry));
    function->method.ml_flags = METH_FASTCALL | METH_KEYWORDS;
    detail::Ref self(detail::checked(PyCapsule_New(function, nullptr, nullptr)));
    detail::Ref callable(detail::checked(PyCFunction_NewEx(&function->method, self.get(), nullptr)));
    if (PyObject_SetAttrString(module_object_, name, callable.get()) != 0) throw detail::PythonError();
    functions_.push_back(function);
  }
  if (extras.doc != nullptr) function->doc = extras.doc;
  function->method.ml_doc = function->doc.c_str();
  function->overloads.push_back(std::move(overload));
}

module_::Doc& module_::Doc::operator=(const char* text) {
  detail::Ref doc(detail::checked(PyUnicode_FromString(text)));
  if (PyObject_SetAttrString(module_object_, "__doc__", doc.get()) != 0) throw detail::PythonError();
  return *this;
}

}  // namespace pybind11
