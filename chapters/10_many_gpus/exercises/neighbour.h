/// \file
/// Exercise ch10-groups: everybody is polite.
#pragma once
#include "common/device/ranks.h"

namespace flashbook::many_gpus {

// Attention within a window needs only the last keys of the previous rank, and, looking ahead, the first keys
// of the next one. So every rank sends its last keys forwards and its first keys backwards around a ring, and
// receives both neighbours' edges. A single rank is its own neighbour.

using device::Queue, device::Rank;

// BEGIN EXERCISE ch10-groups: everybody is polite
/// Puts the last keys of the previous rank into `before`, and the first keys of the next rank into `behind`.
/// `first` and `last` are this rank's own; each has `bytes` bytes.
inline void exchange_edges(Rank& rank, Queue& queue, void* first, void* last, void* before, void* behind,
                           std::size_t bytes) {
  const int next = (rank.number() + 1) % rank.count(),
            previous = (rank.number() + rank.count() - 1) % rank.count();
  // The last keys travel around the ring first, then the first keys.
  rank.exchange(queue, {{next, last, bytes}}, {});
  rank.exchange(queue, {}, {{previous, before, bytes}});
  rank.exchange(queue, {{previous, first, bytes}}, {});
  rank.exchange(queue, {}, {{next, behind, bytes}});
}
// END EXERCISE ch10-groups

}  // namespace flashbook::many_gpus
