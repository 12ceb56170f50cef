/// \file
/// Splits a call into several launches if one grid cannot hold all heads.
#pragma once
#include <algorithm>

#include "common/attention/tensors.h"

namespace flashbook {

/// Calls `run(part, tensors of the part)` for the parts of the batch, each with at most `max_heads` query
/// heads. For forward passes in the default layout. The parts share the workspace, so they must run one after
/// another.
template <typename Run>
void run_in_slices(const Spec& spec, const Tensors& tensors, int64_t max_heads, const Run& run) {
  Spec part = spec;
  part.batch = int(std::min<int64_t>(spec.batch, max_heads / spec.heads));
  const int64_t bytes = size_of(spec.dtype), q_elements = part.q_elements(), k_elements = part.k_elements();
  Tensors t = tensors;
  for (int first = 0; first < spec.batch; first += part.batch) {
    part.batch = std::min(part.batch, spec.batch - first);
    run(part, t);
    t.q = static_cast<const char*>(t.q) + q_elements * bytes;
    t.k = static_cast<const char*>(t.k) + k_elements * bytes;
    t.v = static_cast<const char*>(t.v) + k_elements * bytes;
    t.o = static_cast<char*>(t.o) + q_elements * bytes;
    t.lse += q_elements / spec.head_dim;
  }
}

}  // namespace flashbook
