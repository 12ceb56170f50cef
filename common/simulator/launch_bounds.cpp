#include "common/simulator/launch_bounds.h"

#include <algorithm>
#include <cstddef>

#ifdef __ELF__
// The linker's table, if any: the address of each function's reserved bytes.
extern "C" {
extern const unsigned char* const __start___patchable_function_entries[] __attribute__((weak));
extern const unsigned char* const __stop___patchable_function_entries[] __attribute__((weak));
}
#endif

namespace flashbook::sim {
namespace {

/// Returns whether this range contains only no-op instructions: reserved bytes, not another function's code.
[[maybe_unused]] bool is_free(const unsigned char* begin, const unsigned char* end) {
#ifdef __x86_64__
  return std::all_of(begin, end, [](unsigned char byte) { return byte == 0x90; });
#else
  constexpr unsigned char kNop[] = {0x1f, 0x20, 0x03, 0xd5};
  for (std::ptrdiff_t i = 0; i < end - begin; ++i)
    if (begin[i] != kNop[i % 4]) return false;
  return true;
#endif
}

}  // namespace

LaunchBounds launch_bounds_of([[maybe_unused]] const void* kernel) {
#ifdef __ELF__
#ifdef __x86_64__
  constexpr std::ptrdiff_t kBytes = 1;  // size of a no-op instruction
#else
  constexpr std::ptrdiff_t kBytes = 4;
#endif
  constexpr std::ptrdiff_t kMax = packed_launch_bounds(1024, 32);
  const auto* code = static_cast<const unsigned char*>(kernel);
  std::ptrdiff_t nearest = kMax + 1;
  for (auto entry = __start___patchable_function_entries; entry != __stop___patchable_function_entries;
       ++entry) {
    const std::ptrdiff_t before = (code - *entry) / kBytes;
    if (before > 0 && before < nearest && is_free(*entry, code)) nearest = before;
  }
  if (nearest <= kMax) return {int(nearest - 1) % 1024 + 1, int(nearest - 1) / 1024};
#endif
  return {};
}

}  // namespace flashbook::sim
