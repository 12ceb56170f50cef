/// \file
/// Exercise ch09-prefix: the mask of a prefix model.
#pragma once
#include "chapters/09_masks/step5_mask_functions.cuh"

namespace flashbook::masks {

// A prefix model reads a prompt as a whole and writes from left to right. So all queries see the keys of the
// prompt, and of what was written a query sees what is not after it: the last query stands at the last key,
// as always. Each batch entry has a prompt of its own, which may be longer than all keys there are.
//
// step 5 asks row(batch, head, query) once for each of a thread's rows, and sees(key) for each key. The less
// sees has to do, the better.

/// The mask of a prefix model, as a function for step 5.
struct PrefixMask {
  static constexpr bool kByHead = true;  // batch entries have masks of their own
  const int* prompt;                     // [batch]: keys of the prompt
  int seqlen_q, seqlen_k;

  // BEGIN EXERCISE ch09-prefix: the mask of a prefix model
  /// What the keys are asked that a query may see.
  struct Row {
    int query;

    __device__ bool sees(int key) const { return key <= query; }  // TODO
  };
  __device__ Row row(int, int, int query) const { return {query}; }  // TODO
  // END EXERCISE ch09-prefix
};

}  // namespace flashbook::masks
