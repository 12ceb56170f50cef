//| # Step 1: gather all keys
//|
//| The simplest way to share the work: every rank sends its keys and values to all others, waits until it has
//| all of them, and computes attention for its own queries as if it were alone. There is nothing to merge.
//|
//| It has three costs. Every rank holds all keys and values, so memory limits the length of the sequence as
//| on one GPU. Copies come first and products after, so nothing overlaps. And under a causal mask the last
//| rank does 2 - 1/P times the work of an average one, and the first only 1/P.
//|
//| ![Keys by token and head that two ranks hold before and after an all-gather, at both hops of a ring, and
//| before and after Ulysses](../../docs/figures/rank_exchanges.svg)
#pragma once
#include "chapters/10_many_gpus/share.h"

namespace flashbook::many_gpus {

/// Step 1 of one rank.
class AllGather final : public Program {
 public:
  explicit AllGather(const Share& share)
      : share_(share),
        everything_(tokens_of(Order::contiguous, share.whole.seqlen_k, 0, 1)),
        all_(Place::device, std::size_t(share.key_value_heads * bytes_of_head())),
        documents_(document_hops(share, {{everything_, 0}})) {}

  //| Heads are the outer dimension of a tensor, so a rank's tokens form one contiguous piece of each head.
  //| Every piece is a message that arrives at its final place among all tokens, so no kernel has to sort
  //| them. A rank also sends to itself.
  void run(device::Rank& rank) override {
    std::vector<Message> sends, receives;
    for (int other = 0; other < rank.count(); ++other) {
      const int64_t mine = share_.keys.total() * share_.row_bytes;
      const Tokens theirs = share_.keys_of(other);
      for (int head = 0; head < share_.key_value_heads; ++head) {
        add(sends, other, share_.kv, head * mine, mine);
        add(receives, other, all_, head * bytes_of_head() + theirs.first[0] * share_.row_bytes,
            theirs.total() * share_.row_bytes);
      }
    }
    rank.exchange(queue_, sends, receives);
    const Attention a = share_.attention(everything_, all_, counter_.get());
    if (documents_)
      documents_->attend(a, 0, queue_);
    else if (share_.queries.total() > 0)
      attend(a, queue_);
    queue_.synchronize();
  }

 private:
  int64_t bytes_of_head() const { return share_.whole.seqlen_k * share_.row_bytes; }

  const Share& share_;
  const Tokens everything_;
  Buffer all_;  // [2, heads, seqlen_k, head_dim]
  const std::optional<DocumentHops> documents_;
  Counter counter_;
  Queue queue_;
};

}  // namespace flashbook::many_gpus
