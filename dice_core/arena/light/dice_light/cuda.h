// Current stream, device guard and error checks for CUDA sources of the light tier.
#pragma once

#include <cuda_runtime_api.h>
#ifdef DICE_LIGHT_CUBLAS
#include <cublasLt.h>
#include <cublas_v2.h>
#endif
#ifdef DICE_LIGHT_CUDNN
#include <cudnn.h>
#endif

#include <dice_light/tensor.h>

namespace dice_light {
namespace cuda {

class CUDAStream {
 public:
  CUDAStream(cudaStream_t stream, DeviceIndex index) : stream_(stream), index_(index) {}
  cudaStream_t stream() const { return stream_; }
  operator cudaStream_t() const { return stream_; }  // NOLINT: implicit as in c10
  DeviceIndex device_index() const { return index_; }
  Device device() const { return Device(kCUDA, index_); }
  void synchronize() const;

 private:
  cudaStream_t stream_;
  DeviceIndex index_;
};

namespace detail {
inline void check(cudaError_t code, const char* function, const char* file, int line) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();  // a sticky error stays, any other is cleared as torch does
  ::dice_light::detail::fail(function, file, line,
                             ::dice_light::detail::concat("CUDA error: ", cudaGetErrorString(code)));
}
}  // namespace detail

#define C10_CUDA_CHECK(expression) ::dice_light::cuda::detail::check((expression), __func__, __FILE__, __LINE__)
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())

inline void CUDAStream::synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

inline DeviceIndex current_device() {
  int index = 0;
  C10_CUDA_CHECK(cudaGetDevice(&index));
  return static_cast<DeviceIndex>(index);
}
inline CUDAStream getCurrentCUDAStream(DeviceIndex index = -1) {
  const DeviceIndex resolved = index == -1 ? current_device() : index;
  void* stream = nullptr;
  DICE_LIGHT_ABI(aoti_torch_get_current_cuda_stream(resolved, &stream));
  return CUDAStream(static_cast<cudaStream_t>(stream), resolved);
}

/// Makes a device current for its lifetime. Not copyable and not movable, as in c10.
class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex index) { DICE_LIGHT_ABI(aoti_torch_create_cuda_guard(index, &guard_)); }
  explicit CUDAGuard(Device device) : CUDAGuard(device.index()) {
    if (!device.is_cuda()) throw Error("CUDAGuard needs a CUDA device");
  }
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() {
    if (guard_ != nullptr) abi::aoti_torch_delete_cuda_guard(guard_);
  }
  void set_index(DeviceIndex index) { DICE_LIGHT_ABI(aoti_torch_cuda_guard_set_index(guard_, index)); }
  void set_device(Device device) { set_index(device.index()); }

 private:
  abi::CudaGuardOpaque* guard_ = nullptr;
};
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(optional<Device> device) {
    if (device) guard_.emplace(*device);
  }

 private:
  optional<CUDAGuard> guard_;
};

#ifdef DICE_LIGHT_CUBLAS
inline cublasHandle_t getCurrentCUDABlasHandle() {
  void* handle = nullptr;
  DICE_LIGHT_ABI(torch_get_current_cuda_blas_handle(&handle));
  return static_cast<cublasHandle_t>(handle);
}
inline cublasLtHandle_t getCurrentCUDABlasLtHandle() {
  return static_cast<cublasLtHandle_t>(abi::current_cuda_blas_lt_handle());
}
#define TORCH_CUDABLAS_CHECK(expression)                                                                  \
  do {                                                                                                    \
    const cublasStatus_t dice_light_status = (expression);                                                \
    TORCH_CHECK(dice_light_status == CUBLAS_STATUS_SUCCESS, "CUDA error: cuBLAS status ",                  \
                static_cast<int>(dice_light_status), " when calling `" #expression "`");                  \
  } while (false)
#endif

#ifdef DICE_LIGHT_CUDNN
#define AT_CUDNN_CHECK(expression, ...)                                                                     \
  do {                                                                                                      \
    const cudnnStatus_t dice_light_status = (expression);                                                   \
    TORCH_CHECK(dice_light_status == CUDNN_STATUS_SUCCESS, "cuDNN error: ",                                  \
                cudnnGetErrorString(dice_light_status), ##__VA_ARGS__);                                     \
  } while (false)
#endif

/// Memory from torch's caching allocator, given back at the end of its life.
class DataPtr {
 public:
  DataPtr() = default;
  explicit DataPtr(void* pointer) : pointer_(pointer) {}
  DataPtr(DataPtr&& other) noexcept : pointer_(other.pointer_) { other.pointer_ = nullptr; }
  DataPtr& operator=(DataPtr&& other) noexcept { std::swap(pointer_, other.pointer_); return *this; }
  DataPtr(const DataPtr&) = delete;
  DataPtr& operator=(const DataPtr&) = delete;
  ~DataPtr() {
    if (pointer_ != nullptr) abi::aoti_torch_cuda_caching_allocator_raw_delete(pointer_);
  }
  void* get() const { return pointer_; }
  void* mutable_get() { return pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }

 private:
  void* pointer_ = nullptr;
};

namespace CUDACachingAllocator {
inline void* raw_alloc(size_t nbytes) {
  void* pointer = nullptr;
  DICE_LIGHT_ABI(aoti_torch_cuda_caching_allocator_raw_alloc(nbytes, &pointer));
  return pointer;
}
inline void raw_delete(void* pointer) { DICE_LIGHT_ABI(aoti_torch_cuda_caching_allocator_raw_delete(pointer)); }
class CUDAAllocator {
 public:
  DataPtr allocate(size_t nbytes) { return DataPtr(nbytes == 0 ? nullptr : raw_alloc(nbytes)); }
};
inline CUDAAllocator* get() {
  static CUDAAllocator allocator;
  return &allocator;
}
}  // namespace CUDACachingAllocator

}  // namespace cuda

#ifdef DICE_LIGHT_CUDNN
namespace native {
inline cudnnHandle_t getCudnnHandle() { return static_cast<cudnnHandle_t>(abi::current_cudnn_handle()); }
}  // namespace native
#endif

using cuda::CUDAStream;
using cuda::DataPtr;

inline optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? make_optional(tensor.device()) : nullopt;
}

}  // namespace dice_light

// Named again because torch's header-only macros open these two namespaces, which would hide the using-directives.
namespace c10 { namespace cuda { using namespace dice_light::cuda; } }
namespace at { namespace cuda { using namespace dice_light::cuda; } }
