/// \file
/// Launches a kernel on the machine of this build.
#pragma once
#include <cstddef>
#include <functional>
#include <string>

#include "common/device/device.h"
#include "common/device/kernel.h"
#include "common/device/resources.h"

#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define FLASHBOOK_KEEP_PADDING [[gnu::uninitialized]]
#else
#define FLASHBOOK_KEEP_PADDING
#endif

namespace flashbook::device {

/// Returns the start of every message about a launch: "launch <<<(8,4,1), (128,1,1), 65536>>>: ".
inline std::string describe_launch(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes) {
  const auto triple = [](dim3 d) {
    return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
  };
  return "launch <<<" + triple(grid) + ", " + triple(block) + ", " + std::to_string(dynamic_shared_bytes) +
         ">>>: ";
}

/// How the blocks of a launch are started.
enum class Start {
  plain,       ///< each block when there is room for it
  dependent,   ///< while the previous launch on the stream may still run (dependent_launch.h)
  cooperative  ///< all together, or the launch fails: for blocks that wait for one another. With plain
               ///< launches, two such kernels could each occupy a part of the GPU and wait forever for the
               ///< rest. (In the simulator a block begins when others wait for it, no matter how it was
               ///< launched.)
};

namespace detail {

#ifdef __CUDACC__
constexpr bool kIsTraced = false;
#else
using sim::kIsTraced;

/// A launch and the code that its threads run.
struct Work {
  dim3 grid, block;
  std::size_t dynamic_shared_bytes;
  std::function<void()> thread_body;
  const void* kernel;
  sim::Watcher* watcher;
  bool is_dependent;
};

/// Runs the work immediately on the default stream; on other streams, when the queue reaches it.
void run_on(Stream stream, Work work);

/// Calls `check`, and rethrows the simulator's exceptions as launch errors.
void check_launch(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                  const std::function<void()>& check);
#endif

/// Implements launch and its variants.
template <bool kTraced, typename... Params, typename... Args>
void launch(Start start, void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
            Stream stream, Args... args) {
#ifdef __CUDACC__
  static_assert(sizeof...(Params) == sizeof...(Args),
                "pass one argument for each of the kernel's parameters");
  // a block's default shared memory limit; each kernel must be allowed more
  constexpr std::size_t kDefaultSharedBytes = 48 * 1024;
  cudaError_t error = cudaSuccess;
  if (dynamic_shared_bytes > kDefaultSharedBytes)
    error = allow_shared_bytes(reinterpret_cast<const void*>(kernel), dynamic_shared_bytes);
  if (error == cudaSuccess) {
    cudaLaunchAttribute attribute{};
    if (start == Start::dependent) {
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    } else {
      attribute.id = cudaLaunchAttributeCooperative;
      attribute.val.cooperative = 1;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = dynamic_shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = start == Start::plain ? 0 : 1;
    error = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
    note_launch(reinterpret_cast<const void*>(kernel), int(block.x * block.y * block.z),
                dynamic_shared_bytes);
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // otherwise the next call would report the refusal again
    if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver)
      throw HardwareMissing("CUDA found no usable GPU (", cudaGetErrorString(error),
                            "): build for the simulator with cmake --preset sim");
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
      throw HardwareMissing("this kernel is not built for this GPU (", cudaGetErrorString(error),
                            "): a kernel for sm_90a needs a Hopper GPU; for other kernels, build with a "
                            "different -DCMAKE_CUDA_ARCHITECTURES");
    throw DeviceError(describe_launch(grid, block, dynamic_shared_bytes), cudaGetErrorString(error));
  }
#else
  // g++ 12 with -ftrivial-auto-var-init clears the supposed padding of an object with empty parts, and
  // overwrites the 8 bytes after it: it must not initialise these two. (A shared_ptr would avoid this, too,
  // but its functions, instrumented here, would replace the simulator's own.)
  FLASHBOOK_KEEP_PADDING const auto parameters = sim::parameters<Params...>(args...);
  const auto* code = reinterpret_cast<const void*>(kernel);
  check_launch(grid, block, dynamic_shared_bytes, [&] { sim::require_device_pointers(code, parameters); });
  FLASHBOOK_KEEP_PADDING const auto thread_body = [kernel, parameters] { parameters.pass_to(kernel); };
  run_on(stream, {grid, block, dynamic_shared_bytes, thread_body, code, sim::watcher_of<kTraced>(),
                  start == Start::dependent});
#endif
}

}  // namespace detail

/// Launches `kernel` with `args`, each converted to the parameter's type; `start` specifies how its blocks
/// start. On a GPU it returns immediately, in the simulator when the kernel has finished. Throws
/// HardwareMissing if there is no GPU, or not the one that the kernel was built for. Throws DeviceError if
/// the machine refuses the launch; in the simulator, also if a thread breaks a rule. (`kTraced` keeps
/// launches from traced files apart from others with the same parameters.)
template <bool kTraced = detail::kIsTraced, typename... Params, typename... Args>
void launch(Start start, void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
            Stream stream, Args... args) {
  detail::launch<kTraced>(start, kernel, grid, block, dynamic_shared_bytes, stream, args...);
}

/// Launches a kernel with Start::plain: each block starts when there is room for it.
template <bool kTraced = detail::kIsTraced, typename... Params, typename... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, Stream stream,
            Args... args) {
  launch<kTraced>(Start::plain, kernel, grid, block, dynamic_shared_bytes, stream, args...);
}

/// Launches a kernel that may begin before the previous launch on the stream has finished
/// (common/ptx/dependent_launch.h). Needs Hopper.
template <bool kTraced = detail::kIsTraced, typename... Params, typename... Args>
void launch_dependent(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                      Stream stream, Args... args) {
  launch<kTraced>(Start::dependent, kernel, grid, block, dynamic_shared_bytes, stream, args...);
}

}  // namespace flashbook::device
