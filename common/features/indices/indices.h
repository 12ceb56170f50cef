/// \file
/// Lists of the keys that each query attends to.
#pragma once
#include <cstdint>

#include "common/features/array.h"

namespace flashbook {

struct Spec;

/// The keys of each query (DeepSeek's sparse attention), the same for all heads.
struct Indices {
  int count = 0;         ///< entries per list; 0 means no restriction
  Array<int> keys = {};  ///< [batch, seqlen_q, count], keys in any order, -1: none. A key that is listed
                         ///< twice counts twice

  bool operator==(const Indices&) const = default;
};

/// Returns `spec` with `count` different random keys for each query, at most seqlen_k.
Spec with_indices(Spec spec, int count, uint64_t seed);

}  // namespace flashbook
