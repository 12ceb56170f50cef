//| # Step 6: the gradient in a ring
//|
//| The gradient of a key sums over the queries of all ranks, that of a query over the keys of all ranks. Keys
//| travel as in step 2, while a query's gradient stays with the query, and every hop adds to it. A key's
//| gradient is summed on the way: a rank computes its part for the keys that it holds, adds what earlier
//| ranks have summed for them, and passes the sum on behind the keys. After the last hop the sums reach the
//| rank that owns the keys.
//|
//|     own keys, first half of the heads                   under it the first keys arrive
//|     hop h = 1 ... P - 1:                                the rank holds the keys of rank r - h
//|       keys:     send what is held to rank r + 1, receive from rank r - 1
//|       compute:  the part of dK and dV for the keys held; dQ grows
//|                 from hop 2 on: wait until the sum of hop h - 1 has come; add it to the part
//|       sums:     wait until the part is complete; send it to rank r + 1, receive from rank r - 1
//|     own keys, second half of the heads                  under it the last sum comes home
//|     round (own part + sum)
//|
//| **What travels.** In 16-bit types, an element of a key and of its value takes 4 bytes, and the sums of
//| their gradients take 8 in float32. That makes 12 bytes, three times as much as in the forward pass, while
//| a part has 2.5 times the FLOPs. At the same rate, hiding a hop would take 12 / 4 / 2.5 = 1.2 times as many
//| tokens. If queries travelled instead, Q, dO and dQ's sums would take 8 bytes per element: two thirds as
//| much with as many key heads as query heads, but more with grouped queries.
//|
//| **Why a sum arrives one hop late.** The sum is added after the kernel that computes the part. If the
//| kernel added it, it could not start before the sum had arrived, and nothing would hide the copy.
//|
//| ![Four ranks at each hop of a ring under a causal mask: contiguous tokens leave cells empty, in zigzag
//| every cell is half full](../../docs/figures/rank_work.svg)
#pragma once
#include "chapters/10_many_gpus/host/gradient.h"
#include "chapters/10_many_gpus/step2_ring.h"

namespace flashbook::many_gpus {

/// A rank's additional tensors for the gradient. The share's O and log-sum-exp are inputs here.
struct GradientShare {
  explicit GradientShare(const Share& share)
      : d_o(Place::device, share.q.bytes()),
        dq(Place::device, share.q.bytes()),
        d_kv(Place::device, share.kv.bytes()) {}
  Buffer d_o, dq;  // same layout as q
  Buffer d_kv;     // same layout as kv: dK, then dV
};

/// Step 6 of one rank.
class BackwardRing final : public Program {
 public:
  BackwardRing(const Share& share, const GradientShare& gradients)
      : share_(share), gradients_(gradients), hops_(share, share.whole.sharding.ranks) {
    if (!share.documents.first_query.empty())
      documents_.emplace(KeyLists(share.documents, share.whole.causal(), share.order,
                                  share.whole.sharding.ranks, {share.queries, share.rank},
                                  keys_of_hops(share)));
    const int64_t rows = share.query_heads * padded_rows(share.queries.total());
    lse_ = Buffer(Place::device, std::size_t(rows) * sizeof(float));
    d_ = Buffer(Place::device, lse_.bytes());
    dq_ = Buffer(Place::device, lse_.bytes() * share.whole.head_dim);
    if (share.whole.sharding.ranks == 1) return;
    int most = 0;  // the most keys that a rank has
    for (int rank = 0; rank < share.whole.sharding.ranks; ++rank)
      most = std::max(most, share.keys_of(rank).total());
    for (Buffer& keys : travelling_)
      keys = Buffer(Place::device, std::size_t(share.key_value_heads * most * share.row_bytes));
    for (Buffer* sums : {&own_, &part_[0], &part_[1], &received_})
      *sums = Buffer(Place::device, travelling_[0].bytes() / kElementBytes * sizeof(float));
  }

  //| There are three queues, for products, keys and sums, and each waits for another only where it must. The
  //| two buffers of keys alternate, and so do those of parts: one is sent while the next is computed. One
  //| buffer is enough for arriving sums, since it is added before this rank's next exchange of sums begins.
  void run(device::Rank& rank) override {
    const int ranks = rank.count(), next = (share_.rank + 1) % ranks,
              previous = (share_.rank + ranks - 1) % ranks;
    const auto owner = [&](int hop) { return owner_at_hop(share_, hop, ranks); };
    const auto held = [&](int hop) -> const Buffer& { return hop == 0 ? share_.kv : travelling_[hop % 2]; };
    const auto elements = [&](int hop) {
      return share_.key_value_heads * share_.keys_of(owner(hop)).total() * share_.whole.head_dim;
    };
    const int heads = int(share_.key_value_heads / 2), half = ranks == 1 ? heads : (heads + 1) / 2;
    Gradient own = launch(0, owner(0), held(0), ranks == 1 ? nullptr : floats(own_));
    if (share_.queries.total() > 0)
      prepare(own, share_.o.data(), static_cast<const float*>(share_.lse.data()), compute_);

    device::Event arrived, computed, summed;  // computed: the previous hop; summed: its sums have arrived
    for (int hop = 0; hop < ranks; ++hop) {
      const device::Event here = arrived;
      if (hop + 1 < ranks) {
        keys_.wait_for(computed);
        exchange(rank, keys_, next, held(hop), elements(hop) * kElementBytes, previous, held(hop + 1),
                 elements(hop + 1) * kElementBytes);
        arrived = keys_.record();
      }
      if (hop == 0) {
        compute(0, own, 0, half);
      } else {
        compute_.wait_for(here);
        Buffer& part = part_[hop % 2];
        if (hop == 1 || is_seen(hop))
          compute(hop, launch(hop, owner(hop), held(hop), floats(part)), 0, heads);
        else
          std::swap(part, received_);  // the received sum is passed on as it is
        compute_.wait_for(summed);
        if (hop > 1 && is_seen(hop)) add(floats(part), floats(received_), elements(hop), compute_);
        sums_.wait_for(compute_.record());
        exchange(rank, sums_, next, part, elements(hop) * sizeof(float), previous, received_,
                 elements((hop + 1) % ranks) * sizeof(float));
        summed = sums_.record();
      }
      computed = compute_.record();
    }

    //| While the last sum travels home, the second half of the rank's own heads is computed.
    compute(0, own, half, heads - half);
    compute_.wait_for(summed);
    if (ranks > 1) round_keys(own, floats(own_), floats(received_), compute_);
    if (share_.queries.total() > 0) round_queries(own, gradients_.dq.data(), compute_);
    keys_.synchronize();
    sums_.synchronize();
    compute_.synchronize();
  }

 private:
  static float* floats(const Buffer& buffer) { return static_cast<float*>(buffer.data()); }

  static void exchange(device::Rank& rank, Queue& queue, int next, const Buffer& sent, int64_t sent_bytes,
                       int previous, const Buffer& received, int64_t received_bytes) {
    std::vector<Message> sends, receives;
    many_gpus::add(sends, next, sent, 0, sent_bytes);
    many_gpus::add(receives, previous, received, 0, received_bytes);
    rank.exchange(queue, sends, receives);
  }

  bool is_seen(int hop) const { return documents_ ? documents_->at(hop).is_seen : hops_.is_seen(hop); }

  /// Returns a hop's launch of this rank's queries with another's keys, which are in `from`. Their gradients
  /// go to `part`, or to the results if that is null.
  Gradient launch(int hop, int other, const Buffer& from, float* part) const {
    const KeyHops::Hop* const listed = documents_ ? &documents_->at(hop) : nullptr;
    const Attention a = share_.attention(other, from, counter_.get());
    auto* const dk = static_cast<std::byte*>(gradients_.d_kv.data());
    return {.spec = a.spec,
            .queries = a.queries,
            .keys = a.keys,
            .shift = a.shift,
            .q = a.q,
            .d_o = gradients_.d_o.data(),
            .k = a.k,
            .v = a.v,
            .workspace = {floats(lse_), floats(d_), floats(dq_)},
            .dk = dk,
            .dv = dk + gradients_.d_kv.bytes() / 2,
            .part = part,
            .counter = a.counter,
            .masked = a.masked && a.last_key(0) + 1 < a.spec.seqlen_k,
            .first_head = 0,
            .heads = 0,
            .seen = listed == nullptr ? nullptr : static_cast<const QueriesOfKey*>(listed->keys.data()),
            .tiles = listed == nullptr ? nullptr : static_cast<const KeyTile*>(listed->tiles.data()),
            .margin = share_.margin};
  }

  //| If none of this rank's queries sees the keys held, nothing is computed, and the sum received for them is
  //| passed on unchanged. At hop 1 a sum starts as the part itself, which may be zeros.
  /// Computes some heads of a hop.
  void compute(int hop, Gradient g, int first_head, int heads) {
    if (heads == 0 || g.spec.seqlen_k == 0) return;
    if (is_seen(hop)) {
      g.first_head = first_head;
      g.heads = heads;
      differentiate(g, compute_);
    } else if (first_head == 0) {
      const int64_t all = share_.key_value_heads * g.spec.seqlen_k * share_.whole.head_dim;
      if (g.part != nullptr)
        clear(g.part, all, compute_);
      else
        clear(static_cast<float*>(g.dk), all / 2, compute_);  // two 16-bit zeros are one float zero
    }
  }

  const Share& share_;
  const GradientShare& gradients_;
  const Hops hops_;
  std::optional<KeyHops> documents_;
  Buffer lse_, d_, dq_;   // [heads, padded tokens], and dQ's sums [heads, padded tokens, head_dim]
  Buffer travelling_[2];  // [2, heads, tokens, head_dim] of another rank
  Buffer own_, part_[2];  // same layout in float32: gradients of own keys and of those held
  Buffer received_;       // same layout: the sums of earlier ranks
  Counter counter_;
  Queue compute_, keys_, sums_;
};

}  // namespace flashbook::many_gpus
