#include <algorithm>
#include <chrono>

#include "chapters/10_many_gpus/host/ranks.h"
#include "chapters/10_many_gpus/step1_all_gather.h"
#include "chapters/10_many_gpus/step2_ring.h"
#include "chapters/10_many_gpus/step5_ulysses.h"

namespace flashbook::many_gpus {
namespace {

/// A barrier for all ranks: each sends every other rank a few bytes.
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

constexpr int kGradient = 6, kDecode = 7;  ///< steps

Order order_of(int step) {
  return step == 3 || step == 4 || step == kGradient ? Order::zigzag : Order::contiguous;
}

std::unique_ptr<Program> program_of(int step, const Dealt& dealt) {
  if (step == kDecode) return std::make_unique<Decode>(*dealt.cache);
  const Share& share = *dealt.share;
  if (step == 1) return std::make_unique<AllGather>(share);
  if (step == 5) return std::make_unique<Ulysses>(share);
  if (step == kGradient) return std::make_unique<BackwardRing>(share, *dealt.gradients);
  return std::make_unique<Ring>(share, step == 4);
}

std::byte* at(void* base, int64_t bytes) { return static_cast<std::byte*>(base) + bytes; }

//| Per head, a rank's tokens form one or two runs, each copied by one call; striped rows are not contiguous.
/// Copies inputs to a rank, or its outputs from it.
void copy(const Dealt& dealt, Role role) {
  for (const Dealt::Piece& piece : dealt.pieces) {
    if (piece.role != role) continue;
    const auto width = std::size_t(piece.row_bytes), pitch = width * std::size_t(piece.stride);
    for (int64_t head = 0; head < piece.heads; ++head) {
      int64_t row = head * piece.tokens.total();
      for (int run = 0; run < 2; ++run) {
        const int count = piece.tokens.count[run];
        const int64_t place =
            head * piece.seqlen + int64_t(piece.tokens.first[run]) * piece.stride + piece.offset;
        std::byte* const whole = at(piece.whole, place * piece.row_bytes);
        std::byte* const part = at(piece.part, row * piece.row_bytes);
        if (count > 0 && role == Role::input)
          device::copy_rows_async(nullptr, part, width, whole, pitch, width, std::size_t(count));
        else if (count > 0)
          device::copy_rows_async(nullptr, whole, pitch, part, width, width, std::size_t(count));
        row += count;
      }
    }
  }
}

}  // namespace

Ranks::Ranks(const Spec& spec, const Tensors& tensors, int step, const device::Together& together)
    : spec_(spec),
      tensors_(tensors),
      step_(step),
      order_(spec.sharding.order.value_or(order_of(step))),
      together_(together) {
  for (int rank = 0; rank < spec.sharding.ranks; ++rank) {
    device::use_device(device::device_of_rank(rank));
    dealt_.push_back(deal(rank));
    programs_.push_back(program_of(step, dealt_.back()));
  }
  device::use_device(0);  // that of the whole tensors
  device::synchronize();  // the inputs are complete
  for (const Dealt& dealt : dealt_) copy(dealt, Role::input);
  device::synchronize();
}

//| A rank stores the queries of some heads, whose rows are contiguous, and the keys of some tokens.
Dealt Ranks::deal_cache(int rank) const {
  Dealt dealt;
  dealt.cache =
      std::unique_ptr<CacheShare>(new CacheShare{.whole = spec_, .rank = rank, .margin = together_.margin});
  const CacheShare& share = *dealt.cache;
  const Tokens rows = {{int(share.first_row(rank)), 0}, {int(share.rows(rank)), 0}};
  const auto add_queries = [&](Role role, const void* tensor, const Buffer& part, int64_t row_bytes) {
    dealt.pieces.push_back(
        {role, const_cast<void*>(tensor), part.data(), 1, int(share.all_rows()), rows, row_bytes});
  };
  add_queries(Role::input, tensors_.q, share.q, share.row_bytes);
  for (int i = 0; i < 2; ++i)
    dealt.pieces.push_back({Role::input, const_cast<void*>(i == 0 ? tensors_.k : tensors_.v),
                            at(share.kv.data(), i * int64_t(share.kv.bytes()) / 2), share.kv_heads,
                            spec_.seqlen_k, share.keys, share.row_bytes});
  add_queries(Role::output, tensors_.o, share.o, share.row_bytes);
  add_queries(Role::output, tensors_.lse, share.lse, sizeof(float));
  return dealt;
}

//| For a gradient, O and the log-sum-exp are inputs. In a rank's memory, V follows K, and dV follows dK.
Dealt Ranks::deal(int rank) const {
  if (step_ == kDecode) return deal_cache(rank);
  Dealt dealt;
  Spec whole = spec_;  // its mask is full or causal within each document
  whole.visibility.documents = {};
  dealt.share = std::unique_ptr<Share>(new Share{.whole = whole,
                                                 .order = order_,
                                                 .rank = rank,
                                                 .documents = spec_.visibility.documents,
                                                 .margin = together_.margin});
  const Share& share = *dealt.share;
  const bool is_striped = order_ == Order::striped;
  const int stride = is_striped ? spec_.sharding.ranks : 1, offset = is_striped ? rank : 0;
  const auto add_queries = [&](Role role, const void* tensor, const Buffer& part, int64_t row_bytes) {
    dealt.pieces.push_back({role, const_cast<void*>(tensor), part.data(), share.query_heads, spec_.seqlen_q,
                            share.queries, row_bytes, stride, offset});
  };
  const auto add_keys = [&](Role role, const void* k, const void* v, const Buffer& part) {
    for (int i = 0; i < 2; ++i)
      dealt.pieces.push_back({role, const_cast<void*>(i == 0 ? k : v),
                              at(part.data(), i * int64_t(part.bytes()) / 2), share.key_value_heads / 2,
                              spec_.seqlen_k, share.keys, share.row_bytes, stride, offset});
  };
  const Role result = step_ == kGradient ? Role::input : Role::output;
  add_queries(Role::input, tensors_.q, share.q, share.row_bytes);
  add_keys(Role::input, tensors_.k, tensors_.v, share.kv);
  add_queries(result, tensors_.o, share.o, share.row_bytes);
  add_queries(result, tensors_.lse, share.lse, sizeof(float));
  if (step_ == kGradient) {
    dealt.gradients = std::make_unique<GradientShare>(share);
    add_queries(Role::input, tensors_.d_o, dealt.gradients->d_o, share.row_bytes);
    add_queries(Role::output, tensors_.dq, dealt.gradients->dq, share.row_bytes);
    add_keys(Role::output, tensors_.dk, tensors_.dv, dealt.gradients->d_kv);
  }
  return dealt;
}

template <typename Body>
void Ranks::on_all(const Body& body) {
  device::run_ranks(
      spec_.sharding.ranks, [&](device::Rank& rank) { body(rank, *programs_[std::size_t(rank.number())]); },
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
  std::vector<std::vector<Span>> spans(std::size_t(spec_.sharding.ranks));
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
    std::vector<Clock::time_point> begins, ends;
    for (const std::vector<Span>& rank_spans : spans) {
      begins.push_back(rank_spans[std::size_t(rep)].begin);
      ends.push_back(rank_spans[std::size_t(rep)].end);
    }
    seconds.push_back(
        std::chrono::duration<double>(*std::ranges::max_element(ends) - *std::ranges::min_element(begins))
            .count());
  }
  return seconds;
}

void Ranks::collect() {
  for (const Dealt& dealt : dealt_) copy(dealt, Role::output);
  device::synchronize();
}

}  // namespace flashbook::many_gpus
