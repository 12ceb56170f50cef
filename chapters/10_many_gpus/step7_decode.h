//| # Step 7: decoding with a cache over ranks
//|
//| The cache of every sequence is divided among ranks by tokens. Queries are divided by heads, because
//| tensor-parallel projections leave them that way. A step of decoding then needs two exchanges, both small:
//|
//|     all-gather:   every rank receives the queries of all heads        2 bytes per element
//|     compute:      all queries on the keys of this rank: a part in float32
//|     all-to-all:   each head's part goes to the rank that owns the head 4 bytes per element, for each rank
//|     compute:      merge P parts, round
//|
//| A rank reads only 1/P of the cache, so P GPUs are P times as fast as one, minus the exchanges, whose size
//| does not depend on the length of the cache. Dividing by heads alone (tensor parallelism) would allow no
//| more ranks than key heads; dividing by tokens has no such limit.
//|
//| ![Four blocks write a partial O and log-sum-exp; the last to arrive at the counter merges
//| them](../../docs/figures/merge_parts.svg)
#pragma once
#include "chapters/10_many_gpus/host/cache.h"
#include "chapters/10_many_gpus/step5_ulysses.h"

namespace flashbook::many_gpus {

/// A rank's tensors: the queries of some heads, and the keys of some tokens for all heads.
struct CacheShare {
  Spec whole;  ///< the problem of all ranks together
  int rank;
  int margin = 0;  ///< multiprocessors that attention leaves free for kernels that carry messages
  Tokens keys = tokens_of(Order::contiguous, whole.seqlen_k, rank, whole.sharding.ranks);
  int64_t row_bytes = whole.head_dim * kElementBytes;
  int kv_heads = whole.batch * whole.kv_heads;                   ///< key heads of all batch entries
  Buffer q{Place::device, std::size_t(rows(rank) * row_bytes)};  // [rows, head_dim]
  Buffer kv{Place::device, std::size_t(2 * kv_heads * int64_t(keys.total()) *
                                       row_bytes)};                    // [2, kv heads, tokens, head_dim]
  Buffer o{Place::device, q.bytes()};                                  // same layout as q
  Buffer lse{Place::device, std::size_t(rows(rank)) * sizeof(float)};  // [rows]

  //| Rows of Q and O are numbered across batch, heads and queries, so the rows of neighbouring key heads are
  //| contiguous.
  /// Rows per key head.
  int64_t rows_of_head() const { return int64_t(whole.heads / whole.kv_heads) * whole.seqlen_q; }
  /// Rows of all heads; then a rank's first row, and its number of rows.
  int64_t all_rows() const { return kv_heads * rows_of_head(); }
  int64_t first_row(int other) const {
    return key_heads_of(kv_heads, other, whole.sharding.ranks).first * rows_of_head();
  }
  int64_t rows(int other) const {
    return key_heads_of(kv_heads, other, whole.sharding.ranks).count * rows_of_head();
  }
};

/// Step 7 of one rank.
class Decode final : public Program {
 public:
  explicit Decode(const CacheShare& share)
      : share_(share),
        launch_{.spec = share.whole, .keys = share.keys, .margin = share.margin},
        parts_(parts_of(launch_)),
        q_(Place::device, std::size_t(share.all_rows() * share.row_bytes)),
        split_(share, parts_ > 1 ? parts_ * share.all_rows() : 0),
        part_(share, share.all_rows()),
        received_(share, share.whole.sharding.ranks * share.rows(share.rank)) {
    launch_.q = q_.data();
    launch_.k = share.kv.data();
    launch_.v = static_cast<const std::byte*>(share.kv.data()) + share.kv.bytes() / 2;
  }

  void run(device::Rank& rank) override {
    std::vector<Message> sends, receives;
    for (int other = 0; other < rank.count(); ++other) {
      add(sends, other, share_.q, 0, int64_t(share_.q.bytes()));
      add(receives, other, q_, share_.first_row(other) * share_.row_bytes,
          share_.rows(other) * share_.row_bytes);
    }
    rank.exchange(queue_, sends, receives);

    //| If one block handles all keys of this rank, its part is already the rank's part. If the rank has no
    //| keys, there are no parts, and `merge_parts` writes an empty one.
    const Part& first = parts_ > 1 ? split_ : part_;
    if (parts_ > 0) attend(launch_, parts_, first.floats(), first.lses(), queue_);
    if (parts_ != 1)
      merge_parts(launch_, first.floats(), first.lses(), parts_, share_.all_rows(), part_.floats(),
                  part_.lses(), queue_);

    //| The rows that go to one rank are contiguous in a part. This rank receives one part from each rank and
    //| stores them one after the other.
    sends.clear();
    receives.clear();
    const int64_t mine = share_.rows(share_.rank), row = share_.whole.head_dim * int64_t(sizeof(float));
    for (int other = 0; other < rank.count(); ++other) {
      add(sends, other, part_.o, share_.first_row(other) * row, share_.rows(other) * row);
      add(sends, other, part_.lse, share_.first_row(other) * int64_t(sizeof(float)),
          share_.rows(other) * int64_t(sizeof(float)));
      add(receives, other, received_.o, other * mine * row, mine * row);
      add(receives, other, received_.lse, other * mine * int64_t(sizeof(float)),
          mine * int64_t(sizeof(float)));
    }
    rank.exchange(queue_, sends, receives);
    merge_result(launch_, received_.floats(), received_.lses(), rank.count(), mine, share_.o.data(),
                 static_cast<float*>(share_.lse.data()), queue_);
    queue_.synchronize();
  }

 private:
  /// Results in float32.
  struct Part {
    Part(const CacheShare& share, int64_t rows)
        : o(Place::device, std::size_t(rows * share.whole.head_dim) * sizeof(float)),
          lse(Place::device, std::size_t(rows) * sizeof(float)) {}
    float* floats() const { return static_cast<float*>(o.data()); }
    float* lses() const { return static_cast<float*>(lse.data()); }
    Buffer o, lse;
  };

  const CacheShare& share_;
  Cache launch_;
  const int parts_;               ///< parts into which the rank's keys are split
  Buffer q_;                      // [all rows, head_dim]
  Part split_, part_, received_;  // [parts, all rows, ...], [all rows, ...], [ranks, own rows, ...]
  Queue queue_;
};

}  // namespace flashbook::many_gpus
