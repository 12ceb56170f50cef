/// \file
/// Division by a number that the host knows in advance: a multiplication and a shift instead of some twenty
/// instructions.
#pragma once
#include <cstdint>

#include "common/device/kernel.h"

namespace flashbook::device {

/// A divisor, at least 1, as a kernel's parameter: `n / divisor` and `n % divisor` are exact for 0 <= n <
/// 2^31; elsewhere it converts to the int from which it was made. With m = ceil(2^s / d) and s = 31 +
/// ceil(log2 d), floor(n * m / 2^s) is floor(n / d): m is too large by less than 1, so the quotient is too
/// large by less than n / 2^s < 1 / d (Granlund and Montgomery, PLDI 1994, theorem 4.2).
class Divisor {
 public:
  Divisor() = default;
  __host__ __device__ Divisor(int value) : value_(value), multiplier_(0), shift_(31) {
    while (int64_t(1) << (shift_ - 31) < value) ++shift_;
    multiplier_ = uint32_t(((uint64_t(1) << shift_) + uint32_t(value) - 1) / uint32_t(value));
  }

  __host__ __device__ operator int() const { return value_; }

  friend __host__ __device__ int operator/(int n, const Divisor& divisor) {
    return int(uint64_t(uint32_t(n)) * divisor.multiplier_ >> divisor.shift_);
  }
  friend __host__ __device__ int operator%(int n, const Divisor& divisor) {
    return n - n / divisor * divisor.value_;
  }

 private:
  int value_;
  uint32_t multiplier_;
  int shift_;
};

}  // namespace flashbook::device
