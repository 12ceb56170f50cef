#include "chapters/10_many_gpus/host/ranks.h"
#include "chapters/10_many_gpus/step1_all_gather.h"
#include "chapters/10_many_gpus/step2_ring.h"
#include "chapters/10_many_gpus/step5_ulysses.h"

namespace flashbook::many_gpus {
namespace {

/// The device of the whole tensors.
constexpr int kHome = 0;

std::unique_ptr<Program> program_of(int step, const Share& share) {
  if (step == 1) return std::make_unique<AllGather>(share);
  if (step == 5) return std::make_unique<Ulysses>(share);
  return std::make_unique<Ring>(share, step == 4);
}

/// Calls `copy(whole, part, bytes)` for each piece of a tensor [heads, seqlen, row] that a rank has the
/// tokens of: `whole` and `part` are where it begins in the whole tensor and in the rank's.
template <typename Copy>
void for_pieces(const void* whole, const void* part, int64_t heads, int seqlen, const Tokens& tokens,
                int64_t row_bytes, const Copy& copy) {
  const auto at = [&](const void* base, int64_t row) {
    return const_cast<std::byte*>(static_cast<const std::byte*>(base)) + row * row_bytes;
  };
  for (int64_t head = 0; head < heads; ++head) {
    int64_t row = head * tokens.total();
    for (int run = 0; run < 2; ++run) {
      if (tokens.count[run] > 0)
        copy(at(whole, head * seqlen + tokens.first[run]), at(part, row), tokens.count[run] * row_bytes);
      row += tokens.count[run];
    }
  }
}

}  // namespace

Ranks::Ranks(const Shape& shape, const Tensors& tensors, int step) : tensors_(tensors) {
  const Order order = step == 3 || step == 4 ? Order::zigzag : Order::contiguous;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    device::use_device(device::device_of_rank(rank));
    shares_.push_back(std::unique_ptr<Share>(new Share{.whole = shape, .order = order, .rank = rank}));
    programs_.push_back(program_of(step, *shares_.back()));
  }
  device::use_device(kHome);
  device::synchronize();  // the inputs are there
  const auto in = [](void* whole, void* part, int64_t bytes) {
    device::copy_async(nullptr, part, whole, std::size_t(bytes));
  };
  for (const auto& share : shares_) {
    const Shape& whole = share->whole;
    auto* v = static_cast<std::byte*>(share->kv.data()) + share->kv.bytes() / 2;
    for_pieces(tensors.q, share->q.data(), share->query_heads, whole.seqlen_q, share->queries,
               share->row_bytes, in);
    for_pieces(tensors.k, share->kv.data(), share->key_value_heads / 2, whole.seqlen_k, share->keys,
               share->row_bytes, in);
    for_pieces(tensors.v, v, share->key_value_heads / 2, whole.seqlen_k, share->keys, share->row_bytes, in);
  }
  device::synchronize();
}

void Ranks::run() {
  device::run_ranks(int(shares_.size()),
                    [&](device::Rank& rank) { programs_[std::size_t(rank.number())]->run(rank); });
}

void Ranks::collect() {
  const auto out = [](void* whole, void* part, int64_t bytes) {
    device::copy_async(nullptr, whole, part, std::size_t(bytes));
  };
  for (const auto& share : shares_) {
    for_pieces(tensors_.o, share->o.data(), share->query_heads, share->whole.seqlen_q, share->queries,
               share->row_bytes, out);
    for_pieces(tensors_.lse, share->lse.data(), share->query_heads, share->whole.seqlen_q, share->queries,
               sizeof(float), out);
  }
  device::synchronize();
}

}  // namespace flashbook::many_gpus
