#include "chapters/10_many_gpus/host/ranks.h"
#include "chapters/10_many_gpus/step1_all_gather.h"
#include "chapters/10_many_gpus/step2_ring.h"
#include "chapters/10_many_gpus/step5_ulysses.h"

namespace flashbook::many_gpus {
namespace {

/// The device of the whole tensors.
constexpr int kHome = 0;

constexpr int kGradient = 6;  ///< the step

Order order_of(int step) {
  return step == 3 || step == 4 || step == kGradient ? Order::zigzag : Order::contiguous;
}

std::unique_ptr<Program> program_of(int step, const Share& share) {
  if (step == 1) return std::make_unique<AllGather>(share);
  if (step == 5) return std::make_unique<Ulysses>(share);
  return std::make_unique<Ring>(share, step == 4);
}

std::byte* at(void* base, int64_t bytes) { return static_cast<std::byte*>(base) + bytes; }

}  // namespace

Ranks::Ranks(const Shape& shape, const Tensors& tensors, int step, const Settings& settings) {
  for (int rank = 0; rank < shape.ranks; ++rank) {
    device::use_device(device::device_of_rank(rank));
    shares_.push_back(std::unique_ptr<Share>(new Share{.whole = shape,
                                                       .order = settings.order.value_or(order_of(step)),
                                                       .rank = rank,
                                                       .margin = settings.margin}));
    const Share& share = *shares_.back();
    if (step == kGradient) {
      gradients_.push_back(std::make_unique<GradientShare>(share));
      programs_.push_back(std::make_unique<BackwardRing>(share, *gradients_.back()));
      add_pieces(share, gradients_.back().get(), tensors);
    } else {
      programs_.push_back(program_of(step, share));
      add_pieces(share, nullptr, tensors);
    }
  }
  device::use_device(kHome);
  device::synchronize();  // the inputs are there
  copy(Role::input);
}

//| Of a gradient O and the log-sum-exp are inputs. K and V, and their gradients, lie one behind the other on a rank.
void Ranks::add_pieces(const Share& share, const GradientShare* gradients, const Tensors& t) {
  const Shape& whole = share.whole;
  const auto of_queries = [&](Role role, const void* tensor, const Buffer& part, int64_t row_bytes) {
    pieces_.push_back({role, const_cast<void*>(tensor), part.data(), share.query_heads, whole.seqlen_q,
                       share.queries, row_bytes});
  };
  const auto of_keys = [&](Role role, const void* k, const void* v, const Buffer& part) {
    for (int i = 0; i < 2; ++i)
      pieces_.push_back({role, const_cast<void*>(i == 0 ? k : v),
                         at(part.data(), i * int64_t(part.bytes()) / 2), share.key_value_heads / 2,
                         whole.seqlen_k, share.keys, share.row_bytes});
  };
  const Role result = gradients == nullptr ? Role::output : Role::input;
  of_queries(Role::input, t.q, share.q, share.row_bytes);
  of_keys(Role::input, t.k, t.v, share.kv);
  of_queries(result, t.o, share.o, share.row_bytes);
  of_queries(result, t.lse, share.lse, sizeof(float));
  if (gradients == nullptr) return;
  of_queries(Role::input, t.d_o, gradients->d_o, share.row_bytes);
  of_queries(Role::output, t.dq, gradients->dq, share.row_bytes);
  of_keys(Role::output, t.dk, t.dv, gradients->d_kv);
}

//| Of every head a rank's tokens are a run or two, and each run is a copy.
void Ranks::copy(Role role) const {
  for (const Piece& piece : pieces_) {
    if (piece.role != role) continue;
    for (int64_t head = 0; head < piece.heads; ++head) {
      int64_t row = head * piece.tokens.total();
      for (int run = 0; run < 2; ++run) {
        const int64_t bytes = piece.tokens.count[run] * piece.row_bytes;
        std::byte* const whole =
            at(piece.whole, (head * piece.seqlen + piece.tokens.first[run]) * piece.row_bytes);
        std::byte* const part = at(piece.part, row * piece.row_bytes);
        if (bytes > 0)
          device::copy_async(nullptr, role == Role::input ? part : whole, role == Role::input ? whole : part,
                             std::size_t(bytes));
        row += piece.tokens.count[run];
      }
    }
  }
  device::synchronize();
}

void Ranks::run() {
  device::run_ranks(int(shares_.size()),
                    [&](device::Rank& rank) { programs_[std::size_t(rank.number())]->run(rank); });
}

void Ranks::collect() { copy(Role::output); }

}  // namespace flashbook::many_gpus
