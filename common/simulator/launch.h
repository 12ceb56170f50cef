/// \file
/// Running a grid of blocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <tuple>
#include <type_traits>

#include "common/simulator/parameters.h"
#include "common/simulator/vector_types.h"

namespace flashbook::sim {

class Watcher;

/// A rule of the machine was broken, by a kernel or by its launch. The message says which, and where.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An environment variable says what it cannot say, or the process may have too little memory for a machine.
struct SettingError : Error {
  using Error::Error;
};

/// When an asynchronous copy lands. A kernel that is right is right in all three.
enum class Async {
  eager,  ///< as early as possible: when it is issued
  lazy,   ///< as late as the rules allow: in the wait that names it. Until then its destination is NaN
  random  ///< in between, by the seed
};

/// How grids run.
struct Options {
  int os_threads;             ///< blocks run on that many OS threads; at least 1
  uint64_t seed;              ///< 0: warps run in order. Else: in a random order, the same for the same seed
  Async async = Async::lazy;  ///< when asynchronous copies land
  /// Whether tensor cores round as an H100's and an H200's do (tensor_core.h), which takes longer, or add in
  /// plain float32.
  bool exact = false;
  /// A thread that runs for so many seconds without waiting or exiting is reported; 0: never.
  int timeout = 3;
};

/// The options of this process. They start as FLASHBOOK_SIM_THREADS (default: one OS thread a core, at least
/// 2), FLASHBOOK_SIM_SEED (default: 0), FLASHBOOK_SIM_ASYNC (eager, lazy or random; default: lazy),
/// FLASHBOOK_SIM_EXACT (0 or 1; default: 0) and FLASHBOOK_SIM_TIMEOUT (seconds; default: 3; 0: never) say.
/// Not to be changed while a grid runs. Throws Error if a variable holds nothing that makes sense.
Options& options();

/// Shared memory that a block can have on an H100 or H200: 227 KB.
constexpr std::size_t kMaxSharedBytes = 227 * 1024;

/// Whether the compiler plants the traced mode's calls in this file (flashbook_traced() in CMakeLists.txt).
#if defined(__SANITIZE_THREAD__)
constexpr bool kIsTraced = true;
#elif defined(__has_feature)
constexpr bool kIsTraced = __has_feature(thread_sanitizer);
#else
constexpr bool kIsTraced = false;
#endif

/// Who watches the launches of traced files: the traced mode (trace/trace.h), or nobody if a program sets it
/// to null. Only programs with traced files have it.
extern Watcher* watcher;

/// Who watches what a file launches: the traced mode if it is traced, or nobody.
template <bool kTraced>
Watcher* watcher_of() {
  if constexpr (kTraced) return watcher;
  return nullptr;
}

/// Runs `thread_body` for every thread of every block and returns when the last one has exited. Throws Error
/// for a launch that the machine would refuse, and for the first block, by number, in which a thread breaks a
/// rule or throws. Later blocks may then not have run. In a traced program (trace/trace.h) also for data
/// races and accesses out of bounds. `kernel` is where the kernel's code begins, for its name; `watcher`
/// watches, unless it is null. `dependent`: on a GPU it might begin before the launch before it is over, and
/// whoever watches reports what relies on that end without waiting for it.
void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
              const std::function<void()>& thread_body, const void* kernel = nullptr,
              Watcher* watcher = watcher_of<kIsTraced>(), bool dependent = false);

/// What blocks did that is allowed and rarely meant, since the last call: a line each, for whoever finds that
/// their results are wrong. Empty if nothing was odd.
std::string take_suspects();

/// Throws Error if argument `number` of a kernel, counted from 1, leads to host memory.
void require_device_pointer(const void* kernel, int number, const volatile void* argument);

/// The same for every pointer among a kernel's arguments. Those within a struct the traced mode follows.
template <typename... Params>
void require_device_pointers(const void* kernel, const std::tuple<Params...>& parameters) {
  int number = 0;
  [[maybe_unused]] const auto require = [&]<typename T>(const T& argument) {
    number += !std::is_same_v<T, GridConstant>;
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>)
      require_device_pointer(kernel, number, argument);
  };
  std::apply([&](const Params&... all) { (require(all), ...); }, parameters);
}

/// The calling block's dynamic shared memory, 1024-byte aligned.
unsigned char* dynamic_shared_memory();

}  // namespace flashbook::sim
