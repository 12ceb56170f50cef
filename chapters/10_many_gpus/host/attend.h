//| # What a rank's program launches
//|
//| The programs of the ranks (`step1_all_gather.h`, `step2_ring.h`, `step5_ulysses.h`) run on the host and do
//| not depend on the element type. These functions choose the kernel of a launch, in files that are compiled
//| for one head dimension each.
#pragma once
#include "chapters/10_many_gpus/documents.cuh"
#include "common/attention/spec.h"
#include "common/device/queue.h"

namespace flashbook::many_gpus {

/// One launch: a rank's queries with the keys of one rank or of all.
struct Attention {
  Spec spec;             ///< with as many queries and keys as the launch has, in the default layout
  Tokens queries, keys;  ///< which tokens these are
  int shift;             ///< seqlen_k - seqlen_q of the whole sequence
  const void *q, *k, *v;
  void* o;  ///< [batch, heads, seqlen_q, head_dim]; o and lse of all rows, or of a part's final rows
  float* lse;
  int* counter;    ///< 0 before and after the launch
  bool masked;     ///< whether some query does not see all keys
  int margin = 0;  ///< number of multiprocessors to leave free
  /// With documents, the query tiles in device memory, each with its keys. Null for tiles of all queries.
  const DocumentTile* tiles = nullptr;
  int tile_count = 0;
  Carried carried = {.o = nullptr, .lse = nullptr, .first = 0, .from = 0, .until = 0};  ///< for a part

  /// Returns the last of the keys that a query sees; negative if it sees none.
  int last_key(int query) const;
  /// Returns the first query that sees one of the keys; seqlen_q if none does.
  int first_seeing() const;
};

/// Launches the attention kernel.
void attend(const Attention& attention, device::Queue& queue);

/// Merges a part in float32 into attention.carried.
void merge(const Attention& attention, const float* part_o, const float* part_lse, device::Queue& queue);

/// Writes the result of the first `rows` rows of every head, which see no key at all.
void clear(const Attention& attention, int rows, device::Queue& queue);

// One version of these functions per head dimension, each compiled in a separate file.

template <int kHeadDim>
void attend_with(const Attention& attention, device::Queue& queue);
extern template void attend_with<64>(const Attention&, device::Queue&);
extern template void attend_with<128>(const Attention&, device::Queue&);
extern template void attend_with<256>(const Attention&, device::Queue&);

}  // namespace flashbook::many_gpus
