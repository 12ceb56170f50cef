/// \file
/// What kernels get wrong, as problems: a right kernel that is given the faulty problem answers as a faulty
/// kernel would answer the right one. So every chapter can be shown that its check sees the fault.
#pragma once
#include <string>

#include "common/attention/tensors.h"

namespace flashbook::testing {

enum class Fault {
  zero_value_row,      ///< a row of V is zeros
  swap_key_rows,       ///< two rows of K, but not of V, are each other's
  drop_last_key,       ///< each query misses the last key that it sees
  double_probability,  ///< in each row, key 0 counts twice
};
constexpr Fault kFaults[] = {Fault::zero_value_row, Fault::swap_key_rows, Fault::drop_last_key,
                             Fault::double_probability};

struct Problem {
  Shape shape;
  Inputs inputs;
};

/// The problem with a fault in the last key head of the last batch entry. `key` is the row of V or K that it
/// is about, with the one after it: 0 to seqlen_k - 2. Outputs have the shape of the right problem's. Full or
/// causal attention in the default layout; drop_last_key needs seqlen_k >= 2.
Problem with_fault(const Shape& shape, const Inputs& inputs, Fault fault, int key);

/// "zero_value_row".
std::string name_of(Fault fault);

}  // namespace flashbook::testing
