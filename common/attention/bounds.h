/// \file
/// Bounds by row, from what plain attention errs.
#pragma once
#include <span>
#include <vector>

#include "common/numeric/dtype.h"

namespace flashbook {

/// What a good kernel may err even where plain attention is exact by chance, as a part of the row's scale.
double floor_for(DType output);

/// The largest error of a row. Passes over NaN, and over a log-sum-exp of -inf: an overflow of plain
/// attention widens no bound.
double largest_error(std::span<const double> exact, std::span<const float> plain);

/// The largest absolute value.
double largest_value(std::span<const double> values);

/// Twice the largest error relative to `scale` in 64 rows one after another, times a row's own scale, plus
/// its `floor`.
std::vector<double> bounds_of(std::span<const double> errors, std::span<const double> scale,
                              std::span<const double> floor);

}  // namespace flashbook
