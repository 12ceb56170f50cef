//| # What the program of step 7 launches
//|
//| As in [attend.h](attend.h), these functions choose the kernel of a launch.
#pragma once
#include "chapters/10_many_gpus/tokens.cuh"
#include "common/attention/spec.h"
#include "common/device/queue.h"

namespace flashbook::many_gpus {

/// One launch: all queries with the keys of one rank.
struct Cache {
  Spec spec;    ///< for all ranks together
  Tokens keys;  ///< the rank's keys
  int margin;   ///< number of multiprocessors to leave free
  const void *q = nullptr, *k = nullptr,
             *v = nullptr;  ///< [batch * heads, seqlen_q, head_dim], [batch * kv_heads, keys, head_dim]
};

/// Returns the number of parts into which blocks split the keys; 0 if there are none.
int parts_of(const Cache& cache);

/// Computes attention in `parts` parts: o [parts, batch * heads * seqlen_q, head_dim] and lse.
void attend(const Cache& cache, int parts, float* o, float* lse, device::Queue& queue);

/// Merges parts of `rows` rows into one; without parts, the rows see no key.
void merge_parts(const Cache& cache, const float* part_o, const float* part_lse, int parts, int64_t rows,
                 float* o, float* lse, device::Queue& queue);

/// Merges the parts into the rounded result.
void merge_result(const Cache& cache, const float* part_o, const float* part_lse, int parts, int64_t rows,
                  void* o, float* lse, device::Queue& queue);

}  // namespace flashbook::many_gpus
