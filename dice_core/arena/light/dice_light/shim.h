// The part of PyTorch's stable C ABI that the light tier uses, declared by hand.
//
// Declaring these functions here instead of including torch/csrc/inductor/aoti_torch/c/shim.h keeps every
// torch header out of the translation unit: under nvcc the include alone would cost several seconds. The ABI is
// promised stable by PyTorch (functions are added, never changed), and a function that the installed torch does
// not have fails at link time, which sends the kernel to the full tier.
#pragma once

#include <cstddef>
#include <cstdint>

struct AtenTensorOpaque;
using AtenTensorHandle = AtenTensorOpaque*;

namespace dice_light {
namespace abi {

using Error = int32_t;       // 0 is success
using StackValue = uint64_t;  // torch's StableIValue

struct ListOpaque;
using ListHandle = ListOpaque*;
using ParallelBody = void (*)(int64_t begin, int64_t end, void* context);

extern "C" {
// Tensor objects: a handle owns one at::Tensor on the heap.
Error aoti_torch_new_tensor_handle(AtenTensorHandle tensor, AtenTensorHandle* out);
Error aoti_torch_delete_tensor_object(AtenTensorHandle tensor);
Error aoti_torch_is_defined(AtenTensorHandle tensor, bool* out);

// Geometry and storage.
Error aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** out);
Error aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* out);
Error aoti_torch_get_numel(AtenTensorHandle tensor, int64_t* out);
Error aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t** out);
Error aoti_torch_get_size(AtenTensorHandle tensor, int64_t dim, int64_t* out);
Error aoti_torch_get_strides(AtenTensorHandle tensor, int64_t** out);
Error aoti_torch_get_stride(AtenTensorHandle tensor, int64_t dim, int64_t* out);
Error aoti_torch_get_storage_offset(AtenTensorHandle tensor, int64_t* out);
Error aoti_torch_is_contiguous(AtenTensorHandle tensor, bool* out);

// Type and place.
Error aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t* out);
Error aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t* out);
Error aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t* out);
size_t aoti_torch_dtype_element_size(int32_t dtype);
int32_t aoti_torch_dtype_uint8();
int32_t aoti_torch_dtype_int8();
int32_t aoti_torch_dtype_int16();
int32_t aoti_torch_dtype_int32();
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_dtype_float16();
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_dtype_float64();
int32_t aoti_torch_dtype_bool();
int32_t aoti_torch_dtype_bfloat16();
int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_device_type_cuda();
int32_t aoti_torch_layout_strided();
int32_t aoti_torch_memory_format_contiguous_format();
int32_t aoti_torch_memory_format_channels_last();
int32_t aoti_torch_memory_format_channels_last_3d();
int32_t aoti_torch_memory_format_preserve_format();

// Values.
Error aoti_torch_item_float32(AtenTensorHandle tensor, float* out);
Error aoti_torch_item_float64(AtenTensorHandle tensor, double* out);
Error aoti_torch_item_uint8(AtenTensorHandle tensor, uint8_t* out);
Error aoti_torch_item_int8(AtenTensorHandle tensor, int8_t* out);
Error aoti_torch_item_int16(AtenTensorHandle tensor, int16_t* out);
Error aoti_torch_item_int32(AtenTensorHandle tensor, int32_t* out);
Error aoti_torch_item_int64(AtenTensorHandle tensor, int64_t* out);
Error aoti_torch_item_bool(AtenTensorHandle tensor, bool* out);
Error aoti_torch_scalar_to_tensor_int64(int64_t value, AtenTensorHandle* out);

// Any operator by name.
uint64_t aoti_torch_abi_version();
Error torch_call_dispatcher(const char* op, const char* overload, StackValue* stack, uint64_t abi_version);
Error torch_new_list_reserve_size(size_t size, ListHandle* out);
Error torch_list_push_back(ListHandle list, StackValue element);

// Operators with an entry of their own: the same operators as by name, without the boxed call's 5 us.
Error aoti_torch_aten_new_empty(AtenTensorHandle self, const int64_t* size, int64_t size_len, int32_t* dtype,
                                int32_t* layout, int32_t* device, int32_t device_index, int32_t* pin_memory,
                                AtenTensorHandle* out);
Error aoti_torch_aten_new_zeros(AtenTensorHandle self, const int64_t* size, int64_t size_len, int32_t* dtype,
                                int32_t* layout, int32_t* device, int32_t device_index, int32_t* pin_memory,
                                AtenTensorHandle* out);
Error aoti_torch_aten_fill__Scalar(AtenTensorHandle self, double value);
Error aoti_torch_zero_(AtenTensorHandle self);
Error aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle* out);
Error torch_set_requires_grad(AtenTensorHandle tensor, bool requires_grad);

// Threads and diagnostics. The message getter is newer (2.13), so it may be absent.
Error torch_parallel_for(int64_t begin, int64_t end, int64_t grain, ParallelBody body, void* context);
Error torch_get_num_threads(uint32_t* out);
Error torch_get_thread_idx(uint32_t* out);
void aoti_torch_warn(const char* function, const char* file, uint32_t line, const char* message);
__attribute__((weak)) const char* torch_exception_get_what_without_backtrace();

// libtorch_cuda only.
struct CudaGuardOpaque;
Error aoti_torch_get_current_cuda_stream(int32_t device_index, void** out);
Error aoti_torch_create_cuda_guard(int32_t device_index, CudaGuardOpaque** out);
Error aoti_torch_delete_cuda_guard(CudaGuardOpaque* guard);
Error aoti_torch_cuda_guard_set_index(CudaGuardOpaque* guard, int32_t device_index);
Error aoti_torch_cuda_caching_allocator_raw_alloc(uint64_t nbytes, void** out);
Error aoti_torch_cuda_caching_allocator_raw_delete(void* pointer);
Error torch_get_current_cuda_blas_handle(void** out);
}
// at::cuda::getCurrentCUDABlasLtHandle(), which has no C entry; takes nothing and returns a pointer.
void* current_cuda_blas_lt_handle() __asm__("_ZN2at4cuda26getCurrentCUDABlasLtHandleEv");

void* current_cudnn_handle() __asm__("_ZN2at6native14getCudnnHandleEv");  // likewise at::native::getCudnnHandle()

}  // namespace abi
}  // namespace dice_light
