/// \file
/// Attention straight from its definition: four-dimensional indices, long double, no blocks.
#pragma once
#include <vector>

#include "common/attention/tensors.h"

namespace flashbook::testing {

/// One row of O, and its log-sum-exp.
struct DirectRow {
  std::vector<long double> o;
  long double lse;

  /// Computes query `i` of head `h` of batch entry `b`. K and V are not paged.
  DirectRow(const Spec& spec, const Inputs& inputs, int b, int h, int i);
};

}  // namespace flashbook::testing
