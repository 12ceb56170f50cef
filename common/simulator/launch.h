/// \file
/// Runs a grid of blocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <type_traits>

#include "common/simulator/parameters.h"
#include "common/simulator/vector_types.h"

namespace flashbook::sim {

class Watcher;

/// A kernel or its launch has violated a rule of the machine. The message names the rule and the place.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An environment variable has an invalid value, or the process is not allowed enough memory for the
/// simulated machine.
struct SettingError : Error {
  using Error::Error;
};

/// When asynchronous copies land. A correct kernel gives the right result in all three modes.
enum class Async {
  eager,  ///< as early as possible: when the copy is issued
  lazy,   ///< as late as the rules allow: in the wait that covers the copy; the destination is NaN until then
  random  ///< in between, at a time that depends on the seed
};

/// How grids run.
struct Options {
  int os_threads;  ///< number of OS threads that run blocks; at least 1
  uint64_t seed;   ///< 0: warps run in order; otherwise in a random order that depends only on the seed
  Async async = Async::lazy;  ///< when asynchronous copies land
  /// Whether tensor cores round like those of an H100 and an H200 (tensor_core.h), which is slower, or add in
  /// plain float32.
  bool exact = false;
  /// A thread that runs for this many seconds without waiting or exiting is reported; 0 means never.
  int timeout = 3;
};

/// Returns the options of this process, initialised from FLASHBOOK_SIM_THREADS (default: one OS thread per
/// core, at least 2), FLASHBOOK_SIM_SEED (default: 0), FLASHBOOK_SIM_ASYNC (eager, lazy or random; default:
/// lazy), FLASHBOOK_SIM_EXACT (0 or 1; default: 0) and FLASHBOOK_SIM_TIMEOUT (seconds; default: 3; 0: never).
/// Do not change them while a grid runs. Throws Error if a variable has an invalid value.
Options& options();

/// The maximum shared memory of a block on an H100 or H200: 227 KB.
constexpr std::size_t kMaxSharedBytes = 227 * 1024;

/// Whether the compiler instruments this file for the traced mode (flashbook_traced() in CMakeLists.txt).
#if defined(__SANITIZE_THREAD__)
constexpr bool kIsTraced = true;
#elif defined(__has_feature)
constexpr bool kIsTraced = __has_feature(thread_sanitizer);
#else
constexpr bool kIsTraced = false;
#endif

/// The watcher for launches from traced files: the traced mode (trace/trace.h), or null if a program turns it
/// off. Only programs with traced files define this variable.
extern Watcher* watcher;

/// Returns the watcher of a file's launches: the traced mode if the file is traced, otherwise null.
template <bool kTraced>
Watcher* watcher_of() {
  if constexpr (kTraced) return watcher;
  return nullptr;
}

/// Runs `thread_body` for every thread of every block and returns when the last thread has exited. Throws
/// Error if a GPU would refuse the launch, or for the lowest-numbered block in which a thread breaks a rule
/// or throws; later blocks may not have run. In a traced program (trace/trace.h), Error also reports data
/// races and out-of-bounds accesses. `kernel` is the address of the kernel's code, used to find its name;
/// `watcher` may be null. `dependent`: on a GPU this launch might begin before the previous one has finished;
/// the watcher reports accesses that rely on its end without waiting for it.
void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
              const std::function<void()>& thread_body, const void* kernel = nullptr,
              Watcher* watcher = watcher_of<kIsTraced>(), bool dependent = false);

/// Reports actions of blocks since the last call that are allowed but rarely intended, one per line. They
/// hint at the cause of wrong results. Empty if there is nothing to report.
std::string take_suspects();

/// Throws Error if argument `number` of a kernel, counted from 1, points to host memory.
void require_device_pointer(const void* kernel, int number, const volatile void* argument);

/// Throws Error if any argument of a kernel is a pointer to host memory. The traced mode checks pointers
/// inside structs.
template <typename Numbers, typename... Params>
void require_device_pointers(const void* kernel, const ParameterList<Numbers, Params...>& parameters) {
  int number = 0;
  parameters.for_each([&]<typename T>(const T& argument) {
    number += !std::is_same_v<T, GridConstant>;
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>)
      require_device_pointer(kernel, number, argument);
  });
}

/// Returns the calling block's dynamic shared memory, aligned to 1024 bytes.
unsigned char* dynamic_shared_memory();

}  // namespace flashbook::sim
