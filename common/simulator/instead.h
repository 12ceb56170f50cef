/// \file
/// CUDA features that the simulator lacks. Using one of these names is a compile-time error that names the
/// alternative. Internal to cuda.h.
#pragma once
#include <type_traits>

struct CUstream_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
enum cudaError_t { cudaSuccess };
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize,
  cudaFuncAttributePreferredSharedMemoryCarveout
};
struct cudaDeviceProp {
  int multiProcessorCount, major, minor;
};

/// FLASHBOOK_INSTEAD(result type, name, advice)
#define FLASHBOOK_INSTEAD(Result, name, advice)                                                 \
  template <typename... Args>                                                                   \
  Result name(Args...) {                                                                        \
    static_assert(sizeof...(Args) == std::size_t(-1), #name " is not available here: " advice); \
    return {};                                                                                  \
  }
#define FLASHBOOK_BUFFER "use device::Buffer (common/device/device.h)"
#define FLASHBOOK_QUEUE "use device::Queue (common/device/queue.h)"
#define FLASHBOOK_DONE "use device::synchronize(), which throws on errors (common/device/device.h)"
#define FLASHBOOK_LAUNCH \
  "use device::launch(kernel, grid, block, shared_bytes, stream, args...) (common/device/launch.h)"
FLASHBOOK_INSTEAD(cudaError_t, cudaMalloc, FLASHBOOK_BUFFER)
FLASHBOOK_INSTEAD(cudaError_t, cudaMallocAsync, FLASHBOOK_BUFFER)
FLASHBOOK_INSTEAD(cudaError_t, cudaMallocManaged, FLASHBOOK_BUFFER)
FLASHBOOK_INSTEAD(cudaError_t, cudaMallocHost, FLASHBOOK_BUFFER)
FLASHBOOK_INSTEAD(cudaError_t, cudaFree, FLASHBOOK_BUFFER)
FLASHBOOK_INSTEAD(cudaError_t, cudaFreeHost, FLASHBOOK_BUFFER)
FLASHBOOK_INSTEAD(cudaError_t, cudaMemcpy, FLASHBOOK_BUFFER)
FLASHBOOK_INSTEAD(cudaError_t, cudaMemset, FLASHBOOK_BUFFER)
FLASHBOOK_INSTEAD(cudaError_t, cudaMemcpyAsync, "use device::copy_async (common/device/queue.h)")
FLASHBOOK_INSTEAD(cudaError_t, cudaMemcpyToSymbol,
                  "give the __constant__ variable an initializer, or pass the values to the kernel")
FLASHBOOK_INSTEAD(cudaError_t, cudaMemcpyFromSymbol, "write to device memory that a device::Buffer downloads")
FLASHBOOK_INSTEAD(cudaError_t, cudaDeviceSynchronize, FLASHBOOK_DONE)
FLASHBOOK_INSTEAD(cudaError_t, cudaGetLastError, FLASHBOOK_DONE)
FLASHBOOK_INSTEAD(cudaError_t, cudaPeekAtLastError, FLASHBOOK_DONE)
FLASHBOOK_INSTEAD(const char*, cudaGetErrorString, FLASHBOOK_DONE)
FLASHBOOK_INSTEAD(cudaError_t, cudaStreamCreate, FLASHBOOK_QUEUE)
FLASHBOOK_INSTEAD(cudaError_t, cudaStreamSynchronize, FLASHBOOK_QUEUE)
FLASHBOOK_INSTEAD(cudaError_t, cudaStreamDestroy, FLASHBOOK_QUEUE)
FLASHBOOK_INSTEAD(cudaError_t, cudaEventCreate, FLASHBOOK_QUEUE)
FLASHBOOK_INSTEAD(cudaError_t, cudaEventRecord, FLASHBOOK_QUEUE)
FLASHBOOK_INSTEAD(cudaError_t, cudaEventSynchronize, FLASHBOOK_QUEUE)
FLASHBOOK_INSTEAD(cudaError_t, cudaEventElapsedTime, "use device::time_on_device (common/device/device.h)")
FLASHBOOK_INSTEAD(cudaError_t, cudaFuncSetAttribute,
                  "remove it: device::launch sets the shared memory size (common/device/launch.h)")
FLASHBOOK_INSTEAD(cudaError_t, cudaLaunchKernel, FLASHBOOK_LAUNCH)
FLASHBOOK_INSTEAD(cudaError_t, cudaLaunchCooperativeKernel,
                  "use device::launch(device::Start::cooperative, ...) (common/device/launch.h)")
FLASHBOOK_INSTEAD(cudaError_t, cudaGetDeviceProperties, "use device::info() (common/device/device.h)")
FLASHBOOK_INSTEAD(cudaError_t, cudaGetDeviceCount, "use device::device_count() (common/device/queue.h)")
FLASHBOOK_INSTEAD(cudaError_t, cudaSetDevice, "use device::use_device() (common/device/queue.h)")
FLASHBOOK_INSTEAD(std::size_t, __cvta_generic_to_shared,
                  "use the functions of common/ptx, which take pointers")
FLASHBOOK_INSTEAD(int, __shfl, "no recent GPU has it either; use __shfl_sync with a mask of lanes")
FLASHBOOK_INSTEAD(int, __shfl_down, "no recent GPU has it either; use __shfl_down_sync with a mask of lanes")
FLASHBOOK_INSTEAD(int, __shfl_xor, "no recent GPU has it either; use __shfl_xor_sync with a mask of lanes")
FLASHBOOK_INSTEAD(int, __ballot, "no recent GPU has it either; use __ballot_sync with a mask of lanes")
FLASHBOOK_INSTEAD(int, __any, "no recent GPU has it either; use __any_sync with a mask of lanes")
FLASHBOOK_INSTEAD(int, __all, "no recent GPU has it either; use __all_sync with a mask of lanes")
FLASHBOOK_INSTEAD(unsigned, __lanemask_lt, "CUDA does not have it either; use (1u << lane) - 1")
FLASHBOOK_INSTEAD(unsigned, __dynamic_smem_size, "CUDA does not have it either; pass the size to the kernel")
#define FLASHBOOK_NO_FLOAT(name)                                                                         \
  template <typename T, typename = std::enable_if_t<std::is_floating_point_v<T>>>                        \
  T name(T*, std::type_identity_t<T>) {                                                                  \
    static_assert(sizeof(T) == 0, #name " takes integers, on a GPU as well: use a loop with atomicCAS"); \
    return {};                                                                                           \
  }
FLASHBOOK_NO_FLOAT(atomicMax)
FLASHBOOK_NO_FLOAT(atomicMin)
#undef FLASHBOOK_NO_FLOAT
#undef FLASHBOOK_INSTEAD
#undef FLASHBOOK_BUFFER
#undef FLASHBOOK_QUEUE
#undef FLASHBOOK_DONE
#undef FLASHBOOK_LAUNCH
