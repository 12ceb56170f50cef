/// \file
/// Exercise ch09-prefix: the mask of a prefix model.
#pragma once
#include "chapters/09_masks/step5_mask_functions.cuh"

namespace flashbook::masks {

// A prefix model reads a prompt as a whole and generates from left to right. So all queries see the keys of
// the prompt, and a query also sees all tokens up to its own place: the last query is at the last key, as
// always. Each batch entry has its own prompt, which may be longer than all existing keys.
//
// Step 5 calls row(batch, head, query) once for each of a thread's rows, and sees(key) for each key. The less
// work `sees` does, the better.

/// The mask of a prefix model, as a function for step 5.
struct PrefixMask {
  static constexpr bool kByHead = true;  // batch entries have their own masks
  const int* prompt;                     // [batch]: keys of the prompt
  int seqlen_q, seqlen_k;

  // BEGIN EXERCISE ch09-prefix: the mask of a prefix model
  /// Decides whether a query sees a key.
  struct Row {
    int query;

    __device__ bool sees(int key) const { return key <= query; }  // TODO
  };
  __device__ Row row(int, int, int query) const { return {query}; }  // TODO
  // END EXERCISE ch09-prefix
};

}  // namespace flashbook::masks
