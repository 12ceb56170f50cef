#include "common/simulator/launch_bounds.h"

#include <cstddef>

#ifdef __ELF__
// The linker's table, if there is one: for each function with free bytes, where they begin.
extern "C" {
extern const unsigned char* const __start___patchable_function_entries[] __attribute__((weak));
extern const unsigned char* const __stop___patchable_function_entries[] __attribute__((weak));
}
#endif

namespace flashbook::sim {

LaunchBounds launch_bounds_of([[maybe_unused]] const void* kernel) {
#ifdef __ELF__
#ifdef __x86_64__
  constexpr std::ptrdiff_t kBytes = 1;  // of an instruction that does nothing
#else
  constexpr std::ptrdiff_t kBytes = 4;
#endif
  constexpr std::ptrdiff_t kMost = packed_launch_bounds(1024, 32);
  const auto* code = static_cast<const unsigned char*>(kernel);
  std::ptrdiff_t nearest = kMost + 1;
  for (auto entry = __start___patchable_function_entries; entry != __stop___patchable_function_entries;
       ++entry) {
    const std::ptrdiff_t before = (code - *entry) / kBytes;
    if (before > 0 && before < nearest) nearest = before;
  }
  if (nearest <= kMost) return {int(nearest - 1) % 1024 + 1, int(nearest - 1) / 1024};
#endif
  return {};
}

}  // namespace flashbook::sim
