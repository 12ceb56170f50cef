#include <algorithm>
#include <chrono>
#include <utility>

#include "chapters/10_many_gpus/host/ranks.h"
#include "chapters/10_many_gpus/step1_all_gather.h"
#include "chapters/10_many_gpus/step2_ring.h"
#include "chapters/10_many_gpus/step5_ulysses.h"
#include "common/device/processes.h"

namespace flashbook::many_gpus {
namespace {

/// Where ranks wait for one another: each sends every other a few bytes.
class Gathering {
 public:
  explicit Gathering(device::Rank& rank)
      : rank_(rank), bytes_(Place::device, 16 * std::size_t(2 * rank.count())) {
    for (int other = 0; other < rank.count(); ++other) {
      add(sends_, other, bytes_, 16 * other, 16);
      add(receives_, other, bytes_, 16 * (rank.count() + other), 16);
    }
  }
  void meet(Queue& queue) {
    rank_.exchange(queue, sends_, receives_);
    queue.synchronize();
  }

 private:
  device::Rank& rank_;
  Buffer bytes_;
  std::vector<Message> sends_, receives_;
};

/// The device of the whole tensors.
int home() {
  return device::processes() == nullptr ? 0 : device::device_of_rank(device::processes()->rank());
}

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

Ranks::Ranks(const Shape& shape, const Tensors& tensors, int step, const device::Together& together)
    : together_(together), tensors_(tensors) {
  const Order order = step == 3 || step == 4 ? Order::zigzag : Order::contiguous;
  for (const int rank : device::ranks_here(shape.ranks)) {
    device::use_device(device::device_of_rank(rank));
    shares_.push_back(std::unique_ptr<Share>(
        new Share{.whole = shape, .order = order, .rank = rank, .margin = together.margin}));
    programs_.push_back(program_of(step, *shares_.back()));
  }
  device::use_device(home());
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

template <typename Body>
void Ranks::on_all(const Body& body) {
  device::run_ranks(
      shares_.front()->whole.ranks,
      [&](device::Rank& rank) {
        body(rank, *programs_[programs_.size() == 1 ? 0 : std::size_t(rank.number())]);
      },
      together_.transport);
}

void Ranks::run() {
  on_all([](device::Rank& rank, Program& program) { program.run(rank); });
}

std::vector<double> Ranks::time(int reps) {
  using Clock = std::chrono::steady_clock;
  struct Span {
    Clock::time_point begin, end;
  };
  std::vector<std::vector<Span>> spans(std::size_t(shares_.front()->whole.ranks));
  on_all([&](device::Rank& rank, Program& program) {
    Queue queue;
    Gathering gathering(rank);
    for (int rep = 0; rep < reps; ++rep) {
      device::flush_l2(nullptr);
      device::synchronize();
      gathering.meet(queue);
      const Clock::time_point begin = Clock::now();
      program.run(rank);
      spans[std::size_t(rank.number())].push_back({begin, Clock::now()});
    }
  });
  std::vector<double> seconds;
  for (int rep = 0; rep < reps; ++rep) {
    std::vector<Clock::time_point> begins, ends;  // of processes with clocks of their own, one's only
    for (const std::vector<Span>& of_rank : spans)
      if (!of_rank.empty()) {
        begins.push_back(of_rank[std::size_t(rep)].begin);
        ends.push_back(of_rank[std::size_t(rep)].end);
      }
    seconds.push_back(
        std::chrono::duration<double>(*std::ranges::max_element(ends) - *std::ranges::min_element(begins))
            .count());
  }
  return seconds;
}

void Ranks::put(const Share& share, const Buffer& o, const Buffer& lse) const {
  const auto out = [](void* whole, void* part, int64_t bytes) {
    device::copy_async(nullptr, whole, part, std::size_t(bytes));
  };
  for_pieces(tensors_.o, o.data(), share.query_heads, share.whole.seqlen_q, share.queries, share.row_bytes,
             out);
  for_pieces(tensors_.lse, lse.data(), share.query_heads, share.whole.seqlen_q, share.queries, sizeof(float),
             out);
}

void Ranks::collect() {
  for (const auto& share : shares_) put(*share, share->o, share->lse);
  if (device::processes() != nullptr)
    on_all([&](device::Rank& rank, Program&) {
      const Share& own = *shares_.front();
      std::vector<std::unique_ptr<Share>> others;
      std::vector<Message> sends, receives;
      for (int other = 0; other < rank.count(); ++other) {
        if (other == rank.number()) continue;
        others.push_back(
            std::unique_ptr<Share>(new Share{.whole = own.whole, .order = own.order, .rank = other}));
        for (auto [messages, share] : {std::pair(&sends, &own), {&receives, others.back().get()}}) {
          add(*messages, other, share->o, 0, int64_t(share->o.bytes()));
          add(*messages, other, share->lse, 0, int64_t(share->lse.bytes()));
        }
      }
      Queue queue;
      rank.exchange(queue, sends, receives);
      queue.synchronize();
      for (const auto& share : others) put(*share, share->o, share->lse);
      device::synchronize();
    });
  device::synchronize();
}

}  // namespace flashbook::many_gpus
