/// \file
/// Arithmetic that hosts and kernels share.
#pragma once

namespace flashbook {

constexpr float kLog2e = 1.44269504f;  ///< log2(e)

/// How many parts of `part` elements hold `whole`, the last perhaps in part.
template <typename Whole, typename Part>
constexpr auto ceil_div(Whole whole, Part part) {
  return (whole + part - 1) / part;
}

}  // namespace flashbook
