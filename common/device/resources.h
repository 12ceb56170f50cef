/// \file
/// What kernels take of a multiprocessor: registers, shared memory, and how many blocks fit.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

namespace flashbook::device {

/// The resources of a kernel, as it was launched.
struct KernelResources {
  int registers;             ///< a thread
  std::size_t shared_bytes;  ///< a block, static and dynamic
  std::size_t local_bytes;   ///< a thread; more than 0 is a spill or an array that is indexed at run time
  int threads;               ///< a block
  int blocks_per_multiprocessor;   ///< that fit at once
  int threads_per_multiprocessor;  ///< that could reside there at most: occupancy is a share of it
};

/// Runs `work` and returns what each kernel that it launches on this thread takes, in the order of the
/// launches, every kernel once. Empty in the simulator, which knows no registers. Throws DeviceError if CUDA
/// does not answer.
std::vector<KernelResources> resources_of_kernels(const std::function<void()>& work);

/// Tells resources_of_kernels of a launch on a GPU, if it runs. For launch.h.
void note_launch(const void* kernel, int threads, std::size_t dynamic_shared_bytes);

#ifdef __CUDACC__
/// Allows a kernel's blocks this many bytes of dynamic shared memory on the current device, unless this
/// thread has already done so. For launch.h.
cudaError_t allow_shared_bytes(const void* kernel, std::size_t bytes);
#endif

}  // namespace flashbook::device
