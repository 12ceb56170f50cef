#include "common/simulator/trace/callers.h"

#include <cstring>
#include <map>
#include <set>

#include "common/simulator/block/static_shared.h"
#include "common/simulator/source_lines.h"

namespace flashbook::sim {
namespace {

/// An instruction that is a call, or a jump that is a tail call.
struct Call {
  std::uintptr_t at, target;
};

/// Returns the address in memory of the code at this offset in the program.
const unsigned char* in_memory(std::uintptr_t offset) {
  return reinterpret_cast<const unsigned char*>(offset - offset_in_program(nullptr));
}

/// Returns the calls in a function's code to other functions of the program. x86-64 instructions vary in
/// length, so every byte sequence that looks like a call and leads to the first byte of a function counts.
std::vector<Call> calls_in(const Function& function) {
  std::vector<Call> calls;
  const auto add = [&](std::uintptr_t at, std::uintptr_t target) {
    if (target != function.begin && function_of(target).begin == target && target != 0)
      calls.push_back({at, target});
  };
#if defined(__x86_64__)
  constexpr unsigned char kCall = 0xe8, kJump = 0xe9;
  constexpr std::size_t kBytes = 5;
  for (std::size_t i = 0; i + kBytes <= function.bytes; ++i) {
    const std::uintptr_t at = function.begin + i;
    const unsigned char* const code = in_memory(at);
    if (*code != kCall && *code != kJump) continue;
    int32_t distance;
    std::memcpy(&distance, code + 1, sizeof distance);
    add(at, at + kBytes + std::uintptr_t(std::intptr_t(distance)));
  }
#elif defined(__aarch64__)
  constexpr uint32_t kCall = 0b100101, kJump = 0b000101;
  for (std::size_t i = 0; i + sizeof(uint32_t) <= function.bytes; i += sizeof(uint32_t)) {
    const std::uintptr_t at = function.begin + i;
    uint32_t code;
    std::memcpy(&code, in_memory(at), sizeof code);
    if (code >> 26 != kCall && code >> 26 != kJump) continue;
    add(at, at + std::uintptr_t(std::intptr_t(int32_t(code << 6)) >> 4));
  }
#else
  static_cast<void>(add);
#endif
  return calls;
}

}  // namespace

std::vector<std::uintptr_t> calls_that_lead_to(std::uintptr_t code, const void* kernel) {
  const Function own = function_of(offset_in_program(kernel)), other = function_of(code);
  if (!kernel || own.bytes == 0 || other.bytes == 0 || own.begin == other.begin) return {};

  // All functions that the kernel may reach, and the calls through which it reaches them.
  const std::vector<Call> of_kernel = calls_in(own);
  std::map<std::uintptr_t, std::set<std::uintptr_t>> callers;
  std::vector<std::uintptr_t> left;
  for (const Call& call : of_kernel)
    if (callers.try_emplace(call.target).second) left.push_back(call.target);
  while (!left.empty()) {
    const std::uintptr_t caller = left.back();
    left.pop_back();
    for (const Call& call : calls_in(function_of(caller))) {
      const auto [entry, is_new] = callers.try_emplace(call.target);
      entry->second.insert(caller);
      if (is_new) left.push_back(call.target);
    }
  }
  std::set<std::uintptr_t> lead_there{other.begin};
  left.push_back(other.begin);
  while (!left.empty()) {
    const auto known = callers.find(left.back());
    left.pop_back();
    if (known == callers.end()) continue;
    for (const std::uintptr_t caller : known->second)
      if (lead_there.insert(caller).second) left.push_back(caller);
  }
  std::vector<std::uintptr_t> calls;
  for (const Call& call : of_kernel)
    if (lead_there.contains(call.target)) calls.push_back(call.at);
  return calls;
}

}  // namespace flashbook::sim
