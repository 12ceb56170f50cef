/// \file
/// Shared by the golden cases: golden_*.cu run cases, golden.cu prints or compares them.
#pragma once
#include <string>
#include <vector>

#include "common/device/launch.h"
#include "tests/values.h"

namespace flashbook::golden {

/// Registers cases to run. Each file of cases has one constant of this type.
struct Cases {
  /// Files run in the order of their names, whatever the order of the linker.
  Cases(const char* name, void (*run)());
};

/// Adds a line for a result of at least 16 bytes: its hash and its first four words.
void report(const std::string& name, const void* result, std::size_t bytes);

template <typename T>
void report(const std::string& name, const Values<T>& result) {
  const std::vector<T> values = result.get();
  report(name, values.data(), values.size() * sizeof(T));
}

/// Launches one block of `threads` threads, whose kernel takes a pointer to its `count` results last, and
/// reports them.
template <typename T, typename... Params, typename... Args>
void run_block(const std::string& name, std::size_t count, unsigned threads, std::size_t shared_bytes,
               void (*kernel)(Params...), const Args&... args) {
  Values<T> out(count);
  device::launch(kernel, 1, threads, shared_bytes, nullptr, args..., out.data());
  report(name, out);
}

/// Runs and reports a kernel of one warp with little shared memory.
template <typename T, typename... Params, typename... Args>
void run_case(const std::string& name, std::size_t count, void (*kernel)(Params...), const Args&... args) {
  run_block<T>(name, count, 32, 4096, kernel, args...);
}

}  // namespace flashbook::golden
