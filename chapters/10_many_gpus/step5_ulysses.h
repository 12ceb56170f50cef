//| # Step 5: heads for tokens
//|
//| Heads of attention are independent. So instead of passing keys around, ranks exchange once: each sends
//| away its tokens of most heads and receives all tokens of the heads it keeps. Then it computes ordinary
//| attention, whatever the mask, and the outputs return the same way. The scheme comes from DeepSpeed-Ulysses
//| (arXiv 2309.14509).
//|
//| Each rank sends (P - 1) / P of its Q, K, V and O, once, whereas in the ring K and V travel P - 1 times.
//| But nothing overlaps, and only as many ranks as there are key heads can have work.
//|
//| With many ranks the two are combined: heads are exchanged within a host, and a ring connects the hosts
//| (USP, arXiv 2405.07719).
//|
//| ![Keys by token and head that two ranks hold before and after an all-gather, at both hops of a ring, and
//| before and after Ulysses](../../docs/figures/rank_exchanges.svg)
#pragma once
#include "chapters/10_many_gpus/share.h"

namespace flashbook::many_gpus {

/// A range of heads.
struct Heads {
  int first, count;
};

/// Returns the key heads that a rank computes, with all query heads that share them.
inline Heads key_heads_of(int kv_heads, int rank, int ranks) {
  const auto begin = [&](int r) { return int(int64_t(kv_heads) * r / ranks); };
  return {begin(rank), begin(rank + 1) - begin(rank)};
}

/// Step 5 of one rank. Tokens are distributed contiguously.
class Ulysses final : public Program {
 public:
  explicit Ulysses(const Share& share)
      : share_(share),
        mine_(key_heads_of(share.whole.kv_heads, share.rank, share.whole.sharding.ranks)),
        q_(Place::device, std::size_t(query_rows() * share.row_bytes)),
        kv_(Place::device, std::size_t(2 * int64_t(share.whole.batch) * mine_.count * share.whole.seqlen_k *
                                       share.row_bytes)),
        o_(Place::device, q_.bytes()),
        lse_(Place::device, std::size_t(query_rows()) * sizeof(float)) {
    if (!share.documents.first_query.empty())
      documents_.emplace(DocumentLists(share.documents, share.whole.causal(), Order::contiguous, 1,
                                       {tokens_of(Order::contiguous, share.whole.seqlen_q, 0, 1), 0},
                                       {{tokens_of(Order::contiguous, share.whole.seqlen_k, 0, 1), 0}}));
  }

  void run(device::Rank& rank) override {
    const Spec& whole = share_.whole;
    Pieces in, out;
    pieces(in, share_.q, q_, whole.batch, group(), false, share_.row_bytes);
    pieces(in, share_.kv, kv_, 2 * whole.batch, 1, true, share_.row_bytes);
    pieces(out, share_.o, o_, whole.batch, group(), false, share_.row_bytes);
    pieces(out, share_.lse, lse_, whole.batch, group(), false, sizeof(float));

    rank.exchange(queue_, in.by_tokens, in.by_heads);
    if (mine_.count > 0) {
      Attention a{.spec = whole,
                  .queries = tokens_of(Order::contiguous, whole.seqlen_q, 0, 1),
                  .keys = tokens_of(Order::contiguous, whole.seqlen_k, 0, 1),
                  .shift = whole.seqlen_k - whole.seqlen_q,
                  .q = q_.data(),
                  .k = kv_.data(),
                  .v = static_cast<const std::byte*>(kv_.data()) + kv_.bytes() / 2,
                  .o = o_.data(),
                  .lse = static_cast<float*>(lse_.data()),
                  .counter = counter_.get(),
                  .masked = whole.causal(),
                  .margin = share_.margin};
      a.spec.sharding.ranks = 1;
      a.spec.kv_heads = mine_.count;
      a.spec.heads = mine_.count * group();
      documents_ ? documents_->attend(a, 0, queue_) : attend(a, queue_);
    }
    rank.exchange(queue_, out.by_heads, out.by_tokens);
    queue_.synchronize();
  }

 private:
  //| A piece is one rank's tokens of one head. Every piece has two homes: on the rank that owns the tokens,
  //| next to all other heads of those tokens, and on the rank that computes the head, next to all other
  //| tokens of that head. On the way in, pieces move from the first to the second; on the way out, back.
  struct Pieces {
    std::vector<Message> by_tokens, by_heads;
  };

  /// Adds the pieces of a tensor: `by_tokens` is [batch, all heads, the rank's tokens], `by_heads` [batch,
  /// the rank's heads, all tokens]. `group`: its heads per key head.
  void pieces(Pieces& to, const Buffer& by_tokens, const Buffer& by_heads, int batch, int group, bool keys,
              int64_t row_bytes) const {
    const Spec& whole = share_.whole;
    const int64_t all_heads = int64_t(whole.kv_heads) * group, my_heads = int64_t(mine_.count) * group;
    const int64_t all_tokens = keys ? whole.seqlen_k : whole.seqlen_q;
    const int64_t my_tokens = (keys ? share_.keys : share_.queries).total();
    for (int other = 0; other < whole.sharding.ranks; ++other) {
      const Heads theirs = key_heads_of(whole.kv_heads, other, whole.sharding.ranks);
      const Tokens tokens = keys ? share_.keys_of(other) : share_.queries_of(other);
      for (int64_t entry = 0; entry < batch; ++entry) {
        for (int64_t head = 0; head < int64_t(theirs.count) * group; ++head)
          add(to.by_tokens, other, by_tokens,
              (entry * all_heads + int64_t(theirs.first) * group + head) * my_tokens * row_bytes,
              my_tokens * row_bytes);
        for (int64_t head = 0; head < my_heads; ++head)
          add(to.by_heads, other, by_heads,
              ((entry * my_heads + head) * all_tokens + tokens.first[0]) * row_bytes,
              tokens.total() * row_bytes);
      }
    }
  }

  int group() const { return share_.whole.heads / share_.whole.kv_heads; }
  int64_t query_rows() const {
    return int64_t(share_.whole.batch) * mine_.count * group() * share_.whole.seqlen_q;
  }

  const Share& share_;
  const Heads mine_;
  Buffer q_, kv_;   // [batch, heads, seqlen_q, head_dim], [2, batch, kv heads, seqlen_k, head_dim]
  Buffer o_, lse_;  // [batch, heads, seqlen_q, head_dim], [batch, heads, seqlen_q]
  std::optional<DocumentHops> documents_;
  Counter counter_;
  Queue queue_;
};

}  // namespace flashbook::many_gpus
