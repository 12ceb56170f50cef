//| # A rank's share
//|
//| A rank's share is everything in its device memory before and after a step: its queries, keys and values,
//| and its rows of O and the log-sum-exp. All ranks run a step at the same time, each on its own share, and
//| exchange data only through `device::Rank::exchange`.
//|
//| ![Keys by token and head that two ranks hold before and after an all-gather, at both hops of a ring, and
//| before and after Ulysses](../../docs/figures/rank_exchanges.svg)
#pragma once
#include <optional>
#include <vector>

#include "chapters/10_many_gpus/documents.h"
#include "common/device/ranks.h"

namespace flashbook::many_gpus {

using device::Buffer, device::Message, device::Place, device::Queue;

constexpr int64_t kElementBytes = 2;  ///< bytes per element of Q, K, V and O

/// Adds a message that begins `offset` bytes after `base`. Sender and receiver both omit empty messages.
inline void add(std::vector<Message>& messages, int rank, const Buffer& base, int64_t offset, int64_t bytes) {
  if (bytes > 0)
    messages.push_back({rank, static_cast<std::byte*>(base.data()) + offset, std::size_t(bytes)});
}

//| K and V share one buffer, V after K, since they always travel together. In a message, V's heads simply
//| follow K's.

/// A rank's tensors, in the memory of its device. Construct it while that device is current.
struct Share {
  Spec whole;  ///< the problem of all ranks together
  Order order;
  int rank;
  Documents documents = {};  ///< documents packed in the sequence, unknown to `whole`; none: one
  int margin = 0;            ///< multiprocessors that kernels leave free for messages
  Tokens queries = tokens_of(order, whole.seqlen_q, rank, whole.sharding.ranks),
         keys = tokens_of(order, whole.seqlen_k, rank, whole.sharding.ranks);
  int64_t row_bytes = whole.head_dim * kElementBytes;
  int64_t query_heads = int64_t(whole.batch) * whole.heads,
          key_value_heads = 2 * int64_t(whole.batch) * whole.kv_heads;  ///< heads of K and V together
  Buffer q{Place::device,
           std::size_t(query_heads* queries.total() * row_bytes)};  // [heads, tokens, head_dim]
  Buffer kv{Place::device,
            std::size_t(key_value_heads* keys.total() * row_bytes)};  // [2, heads, tokens, head_dim]
  Buffer o{Place::device, q.bytes()};                                 // same layout as q
  Buffer lse{Place::device, std::size_t(query_heads) * queries.total() * sizeof(float)};  // [heads, tokens]

  Tokens keys_of(int other) const { return tokens_of(order, whole.seqlen_k, other, whole.sharding.ranks); }
  Tokens queries_of(int other) const { return tokens_of(order, whole.seqlen_q, other, whole.sharding.ranks); }

  /// Returns a launch of this rank's queries with another's keys; `from` holds these, then the values.
  Attention attention(int other, const Buffer& from, int* counter) const {
    Attention a = attention(keys_of(other), from, counter);
    a.shift = shift_between(order, a.shift, rank, other, whole.sharding.ranks);
    return a;
  }

  /// Returns a launch with any keys except striped ones, whose places also depend on the other rank.
  Attention attention(const Tokens& on, const Buffer& from, int* counter) const {
    Attention a{
        .spec = whole,
        .queries = queries,
        .keys = on,
        .shift = whole.seqlen_k - whole.seqlen_q,
        .q = q.data(),
        .k = from.data(),
        .v = static_cast<const std::byte*>(from.data()) + key_value_heads / 2 * on.total() * row_bytes,
        .o = o.data(),
        .lse = static_cast<float*>(lse.data()),
        .counter = counter,
        .masked = whole.causal(),
        .margin = margin};
    a.spec.sharding.ranks = 1;
    a.spec.seqlen_q = queries.total();
    a.spec.seqlen_k = on.total();
    return a;
  }
};

/// Returns the tiles of a share's queries for the keys of some ranks, one rank after another; empty if there
/// are no documents.
inline std::optional<DocumentHops> document_hops(const Share& share, const std::vector<OfRank>& keys) {
  if (share.documents.first_query.empty()) return {};
  return DocumentHops({share.documents, share.whole.causal(), share.order, share.whole.sharding.ranks,
                       OfRank{share.queries, share.rank}, keys});
}

/// A zeroed int in device memory, from which blocks take their next tile.
class Counter {
 public:
  Counter() { memory_.upload(std::vector<std::byte>(sizeof(int))); }
  int* get() const { return static_cast<int*>(memory_.data()); }

 private:
  Buffer memory_{Place::device, sizeof(int)};
};

/// A step as one rank runs it, with its own buffers. Construct it while the rank's device is current.
class Program {
 public:
  virtual ~Program() = default;
  /// Returns when the rank's rows of the outputs are complete.
  virtual void run(device::Rank& rank) = 0;

 protected:
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
};

}  // namespace flashbook::many_gpus
