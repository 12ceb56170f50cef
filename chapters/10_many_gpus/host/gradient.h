//| # What the gradient's program launches
//|
//| As in [attend.h](attend.h), these functions choose the kernel of a launch, for step 6.
#pragma once
#include "chapters/10_many_gpus/documents.cuh"
#include "common/attention/spec.h"
#include "common/device/queue.h"
#include "common/hopper/gradient_prepare.h"

namespace flashbook::many_gpus {

/// One launch: queries of a rank, keys of one rank, all heads or some.
struct Gradient {
  Spec spec;             ///< with as many queries and keys as the launch has, in the default layout
  Tokens queries, keys;  ///< which tokens these are
  int shift;             ///< seqlen_k - seqlen_q of the whole sequence
  const void *q, *d_o, *k, *v;
  GradientWorkspace workspace;  ///< [batch, heads, padded_q]
  void *dk, *dv;                ///< [batch, kv_heads, seqlen_k, head_dim], if the launch has all gradients
  float* part;                  ///< [2, batch, kv_heads, seqlen_k, head_dim], dK and dV, or null
  int* counter;
  bool masked;            ///< whether some query does not see all keys
  int first_head, heads;  ///< key heads of the launch, over all batch entries
  /// For documents: which queries see each key, and the tiles of keys, in device memory; otherwise null.
  const QueriesOfKey* seen = nullptr;
  const KeyTile* tiles = nullptr;
  int margin = 0;  ///< number of multiprocessors to leave free
};

/// Returns the rows per head in the workspace.
int padded_rows(int queries);

/// Fills the workspace: D and the log-sum-exp of the queries, and zeros for dQ.
void prepare(const Gradient& gradient, const void* o, const float* lse, device::Queue& queue);

/// Launches the kernel: adds to the workspace's dQ, and stores dK and dV.
void differentiate(const Gradient& gradient, device::Queue& queue);

void add(float* to, const float* from, int64_t floats, device::Queue& queue);

void clear(float* to, int64_t floats, device::Queue& queue);

/// Rounds own + home to dK and dV, which are contiguous.
void round_keys(const Gradient& gradient, const float* own, const float* home, device::Queue& queue);

/// Rounds the workspace's sums to dQ.
void round_queries(const Gradient& gradient, void* dq, device::Queue& queue);

// One version of these functions per head dimension, each compiled in a separate file.

template <int kHeadDim>
void differentiate_with(const Gradient& gradient, device::Queue& queue);
extern template void differentiate_with<64>(const Gradient&, device::Queue&);
extern template void differentiate_with<128>(const Gradient&, device::Queue&);
extern template void differentiate_with<256>(const Gradient&, device::Queue&);

}  // namespace flashbook::many_gpus
