#include "common/device/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "common/device/device.h"
#include "common/numeric/arithmetic.h"

namespace flashbook::device {
namespace {

constexpr int64_t kUnknown = int64_t(1) << 62;
constexpr std::size_t kAlignment = 256;

using Path = std::filesystem::path;

/// Returns the number that follows `key` in a file of keys and numbers, or the only number in a file; returns
/// `otherwise` if there is none ("max" is not a number).
int64_t number_in(const Path& file, const std::string& key, int64_t otherwise) {
  std::ifstream content(file);
  for (std::string word; !key.empty() && word != key;)
    if (!(content >> word)) return otherwise;
  int64_t value;
  return content >> value ? value : otherwise;
}

/// Returns the bytes that one control group still allows; kUnknown or more if it has no limit, or does not
/// exist. File cache pages count as used, but are reclaimed when memory is short; tmpfs pages are not
/// reclaimed, and appear in neither of the two lists.
int64_t left_in(const Path& group) {
  const int64_t limit = number_in(group / "memory.max", "", kUnknown);
  if (limit >= kUnknown) return kUnknown;
  const Path stat = group / "memory.stat";
  return limit - number_in(group / "memory.current", "", 0) + number_in(stat, "active_file", 0) +
         number_in(stat, "inactive_file", 0);
}

/// Returns the memory left under the limits of this process's control group, which the file lists as
/// "0::/a/b", and of the enclosing groups. A container may see itself as the root although its name is
/// longer, so missing groups are ignored.
int64_t left_in_control_groups(const Path& root) {
  Path inner = root / "sys/fs/cgroup";
  int64_t left = left_in(inner);
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("0::"))
      for (const Path& part : Path(line.substr(3)).relative_path())
        left = std::min(left, left_in(inner /= part));
  return left;
}

}  // namespace

int64_t host_memory_available(const std::filesystem::path& root) {
  const int64_t kilobytes = number_in(root / "proc/meminfo", "MemAvailable:", kUnknown >> 10);
  return std::max<int64_t>(0, std::min(kilobytes << 10, left_in_control_groups(root)));
}

void* allocate_host_memory(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const int64_t available = host_memory_available();
  void* memory = nullptr;
  if (int64_t(bytes) <= available)
    memory = std::aligned_alloc(kAlignment, ceil_div(bytes, kAlignment) * kAlignment);
  if (!memory)
    throw UsageError("not enough host memory: ", bytes, " bytes needed, ", available,
                     " available. Use a smaller shape");
  return memory;
}

void free_host_memory(void* address) { std::free(address); }

}  // namespace flashbook::device
