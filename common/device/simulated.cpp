/// \file
/// device.h over the simulator: device memory is a part of the host's, and a launch is over when it returns.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "common/device/backend.h"
#include "common/device/device.h"
#include "common/device/host_memory.h"
#include "common/device/resources.h"
#include "common/simulator/launch.h"
#include "common/simulator/memory.h"

namespace flashbook::device {
namespace {

/// What `work` gives, the simulator's errors as this room's.
template <typename Work>
auto translated(const Work& work) {
  try {
    return work();
  } catch (const sim::SettingError& error) {
    throw UsageError(error.what());
  } catch (const sim::Error& error) {
    throw DeviceError(error.what());
  }
}

}  // namespace

Machine machine() { return Machine::simulator; }

Info info() {
  return {.machine = Machine::simulator,
          .name = "simulator",
          .compute_capability = 90,
          .multiprocessors = multiprocessors(),
          .memory_free = std::min(host_memory_available(), int64_t(translated(sim::largest_global_gap))),
          .l2_bytes = 0,
          .driver = "",
          .runtime = ""};
}

int multiprocessors() { return 3; }  // so that blocks compete for the tiles of persistent kernels

int64_t shared_bytes_of_block() { return int64_t(sim::kMaxSharedBytes); }

void synchronize() {}

double time_on_device(Stream, const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void flush_l2(Stream) {}

void allow_unwritten(const void* address, std::size_t bytes) { sim::note_written(address, bytes); }

std::vector<KernelResources> resources_of_kernels(const std::function<void()>& work) {
  work();
  return {};
}

namespace backend {

void* allocate(std::size_t bytes) {
  if (bytes > std::size_t(host_memory_available()))
    throw UsageError("not enough memory for the simulator: " + std::to_string(bytes) + " bytes needed, " +
                     std::to_string(host_memory_available()) +
                     " available on this host. Use a smaller shape");
  return translated([&] { return sim::allocate_global(bytes); });
}

void free(void* address) noexcept { sim::free_global(address); }

void copy(void* target, const void* source, std::size_t bytes) {
  std::memcpy(target, source, bytes);
  sim::note_written(target, bytes);
}

void poison(void* address, unsigned char byte, std::size_t bytes) {
  std::memset(address, byte, bytes);
  sim::note_unwritten(address);
}

}  // namespace backend
}  // namespace flashbook::device
