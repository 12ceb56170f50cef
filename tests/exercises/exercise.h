/// \file
/// Shared by the exercises' tests: device memory for a kernel, and comparisons that locate the first error.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/attention/tensors.h"
#include "common/device/device.h"
#include "common/device/launch.h"
#include "tests/exercises/observed.h"
#include "tests/require_gpu.h"

namespace flashbook::testing {

/// Elements in device memory. They are NaN until written.
class DeviceArray {
 public:
  DeviceArray(DType type, std::size_t count)
      : type_(type), buffer_(device::Place::device, count * size_of(type)) {}
  DeviceArray(DType type, const std::vector<float>& values) : DeviceArray(type, values.size()) {
    upload(values);
  }

  void upload(const std::vector<float>& values) { buffer_.upload(encode(type_, values)); }

  template <typename T>
  T* as() const {
    return static_cast<T*>(buffer_.data());
  }

  std::vector<float> download() const {
    std::vector<std::byte> bytes(buffer_.bytes());
    buffer_.download(bytes);
    return observed(decode(type_, bytes));
  }

 private:
  DType type_;
  device::Buffer buffer_;
};

/// Launches a kernel, with its blocks started according to `start`, and waits. A fault that the machine
/// reports fails the test.
template <typename... Params, typename... Args>
void run(device::Start start, void (*kernel)(Params...), dim3 grid, dim3 block,
         std::size_t dynamic_shared_bytes, Args... args) {
  std::string complaint;
  try {
    device::launch(start, kernel, grid, block, dynamic_shared_bytes, nullptr, args...);
    device::synchronize();
  } catch (const device::DeviceError& error) {
    complaint = error.what();
  }
  complaint = observed(complaint);
  if (!complaint.empty()) FAIL() << complaint;
}
template <typename... Params, typename... Args>
void run(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, Args... args) {
  run(device::Start::plain, kernel, grid, block, dynamic_shared_bytes, args...);
}

/// Returns normally distributed numbers, times `factor`. They depend on `seed` and course_seed().
inline std::vector<float> random_numbers(std::size_t count, unsigned seed, float factor = 1) {
  std::seed_seq seeds{seed, course_seed()};
  std::mt19937 random(seeds);
  std::normal_distribution<float> normal(0, factor);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

/// Returns a size for a hidden test, from `low` to `high`. It depends on `draw` and course_seed().
inline int drawn(int low, int high, unsigned draw) {
  std::seed_seq seeds{7u, draw, course_seed()};
  std::mt19937 random(seeds);
  return low + int(random() % unsigned(high - low + 1));
}

/// Returns the values rounded to `type`.
inline std::vector<float> rounded(DType type, const std::vector<float>& values) {
  return decode(type, encode(type, values));
}

/// Counts wrong elements and remembers the first. `if_stray` is added to the message if that element should
/// not have been written at all.
class Comparison {
 public:
  explicit Comparison(std::string if_stray = "") : if_stray_(std::move(if_stray)) {}

  /// Checks one element; `where()` names it: "head 0, query 3, key 5". If `want` is NaN, the element must not
  /// have been written; if it is infinite, so must the element be.
  template <typename Where>
  void expect(float got, double want, double tolerance, Where where) {
    const bool right =
        std::isnan(want) ? std::isnan(got) : got == want || std::abs(double(got) - want) <= tolerance;
    ++elements_;
    if (right || wrong_++ > 0) return;
    first_ = where() + " is " +
             (std::isnan(got) ? "NaN (never written, computed from what never was, or inf - inf or 0 / 0)"
                              : std::to_string(got)) +
             " and should " +
             (std::isnan(want) ? "not be written" + if_stray_ : "be " + std::to_string(want));
  }

  /// Fails the test if an element was wrong.
  void finish() const {
    if (wrong_ > 0)
      ADD_FAILURE() << wrong_ << " of " << elements_ << " numbers are wrong. The first: " << first_;
  }

 private:
  int elements_ = 0, wrong_ = 0;
  std::string if_stray_, first_;
};

}  // namespace flashbook::testing
