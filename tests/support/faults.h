/// \file
/// Kernel faults expressed as problems: a correct kernel that runs the faulty problem answers as a faulty
/// kernel would answer the original. This tests that a chapter's check detects the fault without a faulty
/// kernel.
#pragma once
#include <string>

#include "common/attention/tensors.h"

namespace flashbook::testing {

enum class Fault {
  zero_value_row,      ///< a row of V is zero
  swap_key_rows,       ///< two rows of K, but not of V, are swapped
  drop_last_key,       ///< each query misses its last visible key
  double_probability,  ///< in each row, key 0 counts twice
};
constexpr Fault kFaults[] = {Fault::zero_value_row, Fault::swap_key_rows, Fault::drop_last_key,
                             Fault::double_probability};

struct Problem {
  Spec spec;
  Inputs inputs;
};

/// Returns the problem with a fault in the last key head of the last batch entry. `key`, from 0 to seqlen_k -
/// 2, is the affected row of V or K, or the first of two. Outputs have the original problem's shape. Full or
/// causal attention in the default layout; drop_last_key needs seqlen_k >= 2.
Problem with_fault(const Spec& spec, const Inputs& inputs, Fault fault, int key);

/// Returns a fault's name, such as "zero_value_row".
std::string name_of(Fault fault);

}  // namespace flashbook::testing
