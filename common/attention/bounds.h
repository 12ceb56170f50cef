/// \file
/// Error bounds per row, derived from the errors of plain attention.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "common/numeric/dtype.h"

namespace flashbook {

/// Returns the error, relative to the row's scale, that is allowed even where plain attention happens to be
/// exact.
inline double floor_for(DType output) {
  if (output == DType::f32) return 0x1p-18;        // since the sums differ with every order of addition
  return output == DType::f16 ? 0x1p-10 : 0x1p-7;  // P and O: half a unit in the last place each
}

/// Returns the largest error of a row. Ignores NaN, and a log-sum-exp of -inf: an overflow of plain attention
/// widens no bound.
inline double largest_error(std::span<const double> exact, std::span<const float> plain) {
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    if (std::isfinite(exact[i])) largest = std::max(largest, std::abs(exact[i] - plain[i]));
  return largest;
}

inline double largest_value(std::span<const double> values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// Returns bounds: twice the largest error relative to `scale` in 64 consecutive rows, times the row's own
/// scale, plus its `floor`, plus a small amount for weights so small that the GPU flushes them to 0
/// (ex2.approx.ftz.f32).
inline std::vector<double> bounds_of(std::span<const double> errors, std::span<const double> scale,
                                     std::span<const double> floor) {
  constexpr std::size_t kBoundRows = 64;
  constexpr double kFlushed = 0x1p-116;
  std::vector<double> bounds(errors.size());
  for (std::size_t begin = 0; begin < errors.size();) {
    // A remainder of fewer than 64 rows is merged into the last block.
    const std::size_t end = errors.size() - begin < 2 * kBoundRows ? errors.size() : begin + kBoundRows;
    double relative = 0;
    for (std::size_t i = begin; i < end; ++i)
      if (scale[i] > 0) relative = std::max(relative, errors[i] / scale[i]);
    for (std::size_t i = begin; i < end; ++i)
      bounds[i] = 2 * relative * scale[i] + floor[i] + (scale[i] > 0 ? kFlushed : 0);
    begin = end;
  }
  return bounds;
}

}  // namespace flashbook
