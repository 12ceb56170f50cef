/// \file
/// The multiprocessor resources that kernels use: registers, shared memory, and the number of blocks that
/// fit.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

namespace flashbook::device {

struct KernelResources {
  int registers;             ///< per thread
  std::size_t shared_bytes;  ///< per block, static and dynamic
  std::size_t local_bytes;  ///< per thread; more than 0 means a spill or an array that is indexed at run time
  int threads;              ///< per block
  int blocks_per_multiprocessor;   ///< number of blocks that fit at once
  int threads_per_multiprocessor;  ///< maximum number of resident threads, the denominator of occupancy
};

/// Runs `work` and returns the resources of each kernel that it launches on this thread, once per kernel, in
/// launch order. Empty in the simulator, which has no registers. Throws DeviceError if CUDA returns an
/// error.
std::vector<KernelResources> resources_of_kernels(const std::function<void()>& work);

/// Reports a GPU launch to resources_of_kernels if that function is running. launch.h calls it.
void note_launch(const void* kernel, int threads, std::size_t dynamic_shared_bytes);

#ifdef __CUDACC__
/// Allows a kernel's blocks this many bytes of dynamic shared memory on the current device, unless this
/// thread has already done so. launch.h calls it.
cudaError_t allow_shared_bytes(const void* kernel, std::size_t bytes);
#endif

}  // namespace flashbook::device
