//| # Steps 2, 3 and 4: a ring
//|
//| In step 1 a rank waits for all keys before it computes. Here it computes with the keys that it has while
//| the next ones arrive. The ranks form a ring. At each *hop* but the last, a rank sends the keys and values
//| that it holds to the next rank and receives those of the previous one. After P hops it has seen all of
//| them, and has never held more than three ranks' shares.
//|
//|     hop h = 0 ... P - 1:                       the rank holds the keys of rank r - h
//|       copies:   wait until hop h - 1 is computed    its buffer is overwritten now
//|                 send what is held to rank r + 1, receive from rank r - 1
//|       compute:  wait until the keys of hop h have arrived
//|                 attention for its own queries on them: a part
//|                 merge the part into what is carried     at hop 0 it is the part itself
//|
//| Copies and products run in two queues, which wait for each other only at these two points.
//|
//| **Step 3** distributes tokens in zigzag or striped order (`tokens.cuh`), and changes nothing else. **Step
//| 4** merges inside the attention kernel (`step4_carried.cuh`); in steps 2 and 3 a separate kernel merges
//| (`merge.cuh`).
//|
//| ![Four ranks at each hop of a ring under a causal mask: contiguous tokens leave cells empty, in zigzag
//| every cell is half full](../../docs/figures/rank_work.svg)
#pragma once
#include <algorithm>

#include "chapters/10_many_gpus/share.h"

namespace flashbook::many_gpus {

//| ## Which rows a hop changes
//|
//| A row sees a prefix of a hop's keys, and later rows see more of them. So the rows that see any key are the
//| last ones, from `first` on. A row already carries a result if it saw a key at an earlier hop, and its
//| result is final if it sees none at a later hop. Three row numbers per hop describe all of this.
/// Returns whose keys a rank holds at a hop: those of the rank `hop` places earlier.
inline int owner_at_hop(const Share& share, int hop, int ranks) { return (share.rank - hop + ranks) % ranks; }

/// What a hop's launch needs, for all hops of a rank.
class Hops {
 public:
  Hops(const Share& share, int ranks) : rows_(share.queries.total()) {
    for (int hop = 0; hop < ranks; ++hop)
      first_.push_back(share.attention(owner_at_hop(share, hop, ranks), share.kv, nullptr).first_seeing());
  }

  int first(int hop) const { return first_[std::size_t(hop)]; }
  /// Rows from here on have seen a key in an earlier hop.
  int from(int hop) const { return least(0, hop); }
  /// Rows before this one see no key in a later hop.
  int until(int hop) const { return least(hop + 1, int(first_.size())); }
  bool is_seen(int hop) const { return first(hop) < rows_; }
  /// Hops in which some row sees a key.
  int seen() const {
    return int(std::ranges::count_if(first_, [&](int first) { return first < rows_; }));
  }
  /// Rows that see no key at all.
  int unseeing() const { return least(0, int(first_.size())); }

 private:
  /// Returns the first row that sees a key in hops `begin` to `end` - 1.
  int least(int begin, int end) const {
    int row = rows_;
    for (int hop = begin; hop < end; ++hop) row = std::min(row, first(hop));
    return row;
  }

  int rows_;
  std::vector<int> first_;
};

/// Returns whose keys a rank holds at each hop.
inline std::vector<OfRank> keys_of_hops(const Share& share) {
  std::vector<OfRank> keys;
  for (int hop = 0; hop < share.whole.sharding.ranks; ++hop) {
    const int owner = owner_at_hop(share, hop, share.whole.sharding.ranks);
    keys.push_back({share.keys_of(owner), owner});
  }
  return keys;
}

//| ## The program of a rank

/// Steps 2 to 4 of one rank. `merges_inside`: step 4.
class Ring final : public Program {
 public:
  Ring(const Share& share, bool merges_inside)
      : share_(share), merges_inside_(merges_inside), documents_(document_hops(share, keys_of_hops(share))) {
    int most = 0;  // the largest number of keys on a rank
    for (int rank = 0; rank < share.whole.sharding.ranks; ++rank)
      most = std::max(most, share.keys_of(rank).total());
    for (Buffer& buffer : travelling_)
      buffer = Buffer(Place::device, std::size_t(share.key_value_heads * most * share.row_bytes));
    for (Part* part : {&carried_, &part_}) {
      if (part == &part_ && merges_inside) continue;
      part->o = Buffer(Place::device, share.q.bytes() / kElementBytes * sizeof(float));
      part->lse = Buffer(Place::device, share.lse.bytes());
    }
  }

  //| The rank's own keys stay in place, and two buffers alternate for those of others. While hop h is
  //| computed from one, the keys of hop h + 1 arrive in the other and overwrite those of hop h - 1. By then
  //| this rank's launch of hop h - 1 must have read them, and the next rank must have received its copy. The
  //| queue `copies` ensures the latter, since its exchanges run in order.
  void run(device::Rank& rank) override {
    const int ranks = rank.count(), next = (share_.rank + 1) % ranks,
              previous = (share_.rank + ranks - 1) % ranks;
    const Hops hops(share_, ranks);
    const auto owner = [&](int hop) { return owner_at_hop(share_, hop, ranks); };
    const auto held = [&](int hop) -> const Buffer& { return hop == 0 ? share_.kv : travelling_[hop % 2]; };
    const auto bytes = [&](int hop) {
      return share_.key_value_heads * share_.keys_of(owner(hop)).total() * share_.row_bytes;
    };
    //| The host launches a hop's products before it arranges the exchange, which takes it a while. NCCL is
    //| different: its kernels must get their multiprocessors before those of the products do.
    const bool exchanges_first = rank.transport() == device::Transport::nccl;
    device::Event arrived, computed;  // computed: the previous hop is done
    for (int hop = 0; hop < ranks; ++hop) {
      const device::Event here = arrived, before = computed;
      const auto attend = [&] {
        compute_.wait_for(here);
        attend_hop(hops, hop, share_.attention(owner(hop), held(hop), counter_.get()));
        computed = compute_.record();
      };
      if (!exchanges_first) attend();
      if (hop + 1 < ranks) {
        copies_.wait_for(before);
        std::vector<Message> sends, receives;
        add(sends, next, held(hop), 0, bytes(hop));
        add(receives, previous, held(hop + 1), 0, bytes(hop + 1));
        rank.exchange(copies_, sends, receives);
        arrived = copies_.record();
      }
      if (exchanges_first) attend();
    }
    if (const int rows = hops.unseeing(); rows > 0 && hops.seen() != 1 && !documents_)
      clear(share_.attention(share_.rank, share_.kv, nullptr), rows, compute_);
    copies_.synchronize();
    compute_.synchronize();
  }

 private:
  /// Results in float32.
  struct Part {
    Buffer o, lse;

    Carried carried(int first, int from, int until) const {
      return {static_cast<float*>(o.data()), static_cast<float*>(lse.data()), first, from, until};
    }
  };

  //| If only one hop's keys are seen, there is nothing to merge, and the launch is an ordinary one. So a
  //| single rank computes exactly what chapter 5 computes. If all queries see all keys of a hop, the launch
  //| needs no mask.
  void attend_hop(const Hops& hops, int hop, Attention a) {
    if (documents_) {
      a.carried = carried_.carried(0, 0, 0);
      return documents_->attend(a, std::size_t(hop), compute_);
    }
    if (!hops.is_seen(hop)) return;
    const int first = hops.first(hop), from = hops.from(hop), until = hops.until(hop);
    const bool is_whole = hops.seen() == 1;
    a.masked = a.masked && (hop == 0 || a.last_key(is_whole ? 0 : first) + 1 < a.spec.seqlen_k);
    if (is_whole) return attend(a, compute_);
    const int rows = a.spec.seqlen_q;
    if (merges_inside_ || from == rows) {
      a.carried = carried_.carried(first, from, until);
      return attend(a, compute_);
    }
    a.carried = part_.carried(first, rows, 0);
    attend(a, compute_);
    a.carried = carried_.carried(first, from, until);
    merge(a, static_cast<const float*>(part_.o.data()), static_cast<const float*>(part_.lse.data()),
          compute_);
  }

  const Share& share_;
  const bool merges_inside_;
  Buffer travelling_[2];  // [2, heads, tokens, head_dim] of another rank
  Part carried_, part_;   // o [batch, heads, tokens, head_dim], lse [batch, heads, tokens]
  const std::optional<DocumentHops> documents_;
  Counter counter_;
  Queue compute_, copies_;
};

}  // namespace flashbook::many_gpus
