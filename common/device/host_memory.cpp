#include "common/device/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "common/device/device.h"

namespace flashbook::device {
namespace {

constexpr int64_t kUnknown = int64_t(1) << 62;
constexpr std::size_t kAlignment = 256;

/// The number after `key` in a file of keys and numbers, or `otherwise`.
int64_t number_after(const char* file, const std::string& key, int64_t otherwise) {
  std::ifstream lines(file);
  for (std::string word; lines >> word;)
    if (int64_t value; word == key && lines >> value) return value;
  return otherwise;
}

/// The number that a file holds, or `otherwise` ("max" is no number).
int64_t number_in(const char* file, int64_t otherwise) {
  std::ifstream content(file);
  int64_t value;
  return content >> value ? value : otherwise;
}

/// What a container's limit leaves. Its cache of files is counted as used, but is given up when memory is
/// short.
int64_t left_in_container() {
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max", kUnknown);
  if (limit == kUnknown) return kUnknown;
  return limit - number_in("/sys/fs/cgroup/memory.current", 0) +
         number_after("/sys/fs/cgroup/memory.stat", "file", 0);
}

}  // namespace

int64_t host_memory_available() {
  const int64_t kilobytes = number_after("/proc/meminfo", "MemAvailable:", kUnknown >> 10);
  return std::min(kilobytes << 10, left_in_container());
}

void* allocate_host_memory(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const int64_t available = host_memory_available();
  void* memory = nullptr;
  if (bytes <= std::size_t(available))
    memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (!memory)
    throw DeviceError("not enough host memory: " + std::to_string(bytes) + " bytes needed, " +
                      std::to_string(available) + " available. Use a smaller shape");
  return memory;
}

void free_host_memory(void* address) { std::free(address); }

}  // namespace flashbook::device
