/// \file
/// Grids: what the machine would refuse, and blocks for every OS thread.
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "common/simulator/block/static_shared.h"
#include "common/simulator/block/watchdog.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/launch.h"
#include "common/simulator/launch_bounds.h"
#include "common/simulator/memory.h"
#include "common/simulator/source_lines.h"

namespace flashbook::sim {
namespace {

constexpr unsigned kMaxGridX = (1u << 31) - 1;
constexpr unsigned kMaxGridYZ = (1u << 16) - 1;
constexpr unsigned kMaxBlockZ = 64;
constexpr int kMaxOsThreads = 1024;
constexpr int kMaxTimeout = 24 * 60 * 60;

std::string text_of(dim3 size) {
  return "(" + std::to_string(size.x) + "," + std::to_string(size.y) + "," + std::to_string(size.z) + ")";
}

/// "attend<64> at attention.cuh:58": the kernel whose code begins here, as far as that is known.
std::string describe_kernel(const void* kernel) {
  const std::uintptr_t code = offset_in_program(kernel);
  const auto lines = source_lines_of_code({&code, 1});
  const auto line = lines.find(code);
  const std::string name = function_name(kernel);
  return (name.empty() ? "the kernel" : name) +
         (line == lines.end() || line->second.empty() ? "" : " at " + line->second.front());
}

/// Throws Error if a GPU of compute capability 9.0 would refuse the launch (CUDA programming guide, "Compute
/// Capabilities").
void check_launch(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const void* kernel) {
  for (dim3 size : {grid, block})
    if (size.x == 0 || size.y == 0 || size.z == 0)
      throw Error("grid " + text_of(grid) + " of blocks " + text_of(block) +
                  ": every dimension must be at least 1");
  if (uint64_t(block.x) * block.y > kMaxThreads || uint64_t(block.x) * block.y * block.z > kMaxThreads)
    throw Error("a block of " + text_of(block) + " threads: at most 1024 together");
  const LaunchBounds bounds = launch_bounds_of(kernel);
  if (const unsigned threads = block.x * block.y * block.z;
      bounds.threads && threads > unsigned(bounds.threads))
    throw Error("a block of " + std::to_string(threads) + " threads: the __launch_bounds__ of " +
                describe_kernel(kernel) + " allow " + std::to_string(bounds.threads) +
                ", and a GPU refuses the launch. Launch fewer, or raise the bound");
  if (block.z > kMaxBlockZ) throw Error("a block of " + text_of(block) + " threads: z is at most 64");
  if (grid.x > kMaxGridX) throw Error("a grid of " + text_of(grid) + " blocks: x is at most 2147483647");
  if (grid.y > kMaxGridYZ || grid.z > kMaxGridYZ)
    throw Error("a grid of " + text_of(grid) + " blocks: y and z are at most 65535");
  if (dynamic_shared_bytes > kMaxSharedBytes)
    throw Error(std::to_string(dynamic_shared_bytes) +
                " bytes of dynamic shared memory: a block has at most " + std::to_string(kMaxSharedBytes) +
                " (227 KB)");
  const std::size_t arrays = static_shared_bytes_of(kernel);
  if (dynamic_shared_bytes + arrays > kMaxSharedBytes)
    throw Error(std::to_string(dynamic_shared_bytes) + " bytes of dynamic shared memory and " +
                std::to_string(arrays) + " of __shared__ arrays: a block has at most " +
                std::to_string(kMaxSharedBytes) + " (227 KB) together");
}

/// The whole number in an environment variable, or `otherwise` if it is not set.
uint64_t from_environment(const char* name, uint64_t otherwise, uint64_t least, uint64_t most) {
  const char* text = std::getenv(name);
  if (!text) return otherwise;
  const char* end = text + std::strlen(text);
  uint64_t value = 0;
  const auto [parsed, error] = std::from_chars(text, end, value);
  if (error != std::errc() || parsed != end || value < least || value > most)
    throw SettingError(std::string(name) + "=" + text + ": give a whole number from " +
                       std::to_string(least) + " to " + std::to_string(most));
  return value;
}

Async async_from_environment() {
  const char* name = "FLASHBOOK_SIM_ASYNC";
  const char* text = std::getenv(name);
  const std::string_view value = text ? text : "lazy";
  if (value == "eager") return Async::eager;
  if (value == "lazy") return Async::lazy;
  if (value == "random") return Async::random;
  throw SettingError(std::string(name) + "=" + text + ": use eager, lazy or random");
}

/// The error of the lowest block. Blocks are handed out in order, so it does not depend on the number of OS
/// threads.
class FirstError {
 public:
  void add(uint64_t block, std::string text) {
    const std::lock_guard lock(mutex_);
    if (text_.empty() || block < block_) {
      block_ = block;
      text_ = std::move(text);
    }
    happened_ = true;
  }
  bool happened() const { return happened_; }
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> happened_{false};
  uint64_t block_ = 0;
  std::string text_;
};

}  // namespace

Options& options() {
  static Options options{
      int(from_environment("FLASHBOOK_SIM_THREADS", std::max(1u, std::thread::hardware_concurrency()), 1,
                           kMaxOsThreads)),
      from_environment("FLASHBOOK_SIM_SEED", 0, 0, ~uint64_t(0)), async_from_environment(),
      from_environment("FLASHBOOK_SIM_EXACT", 0, 0, 1) == 1,
      int(from_environment("FLASHBOOK_SIM_TIMEOUT", 3, 0, kMaxTimeout))};
  return options;
}

void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
              const std::function<void()>& thread_body, const void* kernel, Watcher* watcher,
              bool dependent) {
  if (current_worker)
    throw Error("a kernel launches a kernel: the simulator runs launches from the host only");
  check_launch(grid, block, dynamic_shared_bytes, kernel);

  // Workers outlive a grid, since their memory is dear to set up; one grid at a time has them.
  static std::mutex one_grid;
  static std::vector<std::unique_ptr<Worker>> workers;
  const std::lock_guard lock(one_grid);

  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  const std::size_t os_threads = std::min<uint64_t>(blocks, uint64_t(std::max(1, options().os_threads)));
  while (workers.size() < os_threads) workers.push_back(std::make_unique<Worker>());

  if (!watcher) note_all_written();  // what this launch writes, nobody sees
  if (watcher) watcher->grid_begins({grid, block, dynamic_shared_bytes, kernel, dependent});
  const CrashGuard guard;
  const uint64_t seed = options().seed;
  std::atomic<uint64_t> next_block{0};
  FirstError error;
  const auto run_blocks = [&](Worker& worker) {
    const Watchdog watchdog(options().timeout);
    worker.enter_grid(grid, block, dynamic_shared_bytes, thread_body, kernel, watcher);
    for (uint64_t number; !error.happened() && (number = next_block++) < blocks;)
      if (auto problem = worker.run_block(number, seed)) error.add(number, *problem);
  };

  std::vector<std::thread> others;
  for (std::size_t i = 1; i < os_threads; ++i) {
    try {
      others.emplace_back(run_blocks, std::ref(*workers[i]));
    } catch (const std::system_error&) {
      break;  // the system has no more threads: those there are do the work
    }
  }
  run_blocks(*workers[0]);
  for (std::thread& other : others) other.join();
  const std::string seen = watcher ? watcher->grid_ends() : "";
  if (error.happened()) throw Error(error.text() + (seen.empty() ? "" : "\n") + seen);
  if (!seen.empty()) throw Error(seen);
}

void require_device_pointer(const void* kernel, int number, const volatile void* argument) {
  if (!argument || is_global(const_cast<const void*>(argument))) return;
  throw Error("argument " + std::to_string(number) + " of " + describe_kernel(kernel) +
              " points to host memory: an illegal address on a GPU. Copy the data to a device::Buffer "
              "(Place::device) and give the kernel that");
}

unsigned char* dynamic_shared_memory() {
  if (!current_worker)
    throw Error("dynamic shared memory was asked for outside a kernel: launch the kernel instead");
  return current_worker->memory.dynamic().data();
}

}  // namespace flashbook::sim
