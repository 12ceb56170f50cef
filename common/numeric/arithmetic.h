/// \file
/// Arithmetic shared by the host and kernels.
#pragma once

namespace flashbook {

constexpr float kLog2e = 1.44269504f;        ///< log2(e)
constexpr float kLn2 = 0.6931471805599453f;  ///< ln(2)

/// Returns the number of parts of `part` elements that hold `whole`; the last part may be incomplete.
template <typename Whole, typename Part>
constexpr auto ceil_div(Whole whole, Part part) {
  return (whole + part - 1) / part;
}

}  // namespace flashbook
