/// \file
/// Prints the errors of a ring of many ranks, with partial results carried in float32 or rounded to bf16
/// after each hop, as JSON, from which recorded_data.py makes docs/figures/interactive/rank_errors_data.js.
#include <cmath>
#include <cstdio>
#include <vector>

#include "chapters/10_many_gpus/host/attend.h"
#include "chapters/10_many_gpus/step2_ring.h"
#include "common/attention/inputs.h"
#include "common/attention/oracle.h"

namespace flashbook::many_gpus {
namespace {

constexpr int kTokens = 512, kHeads = 2;
constexpr int kRanks[] = {1, 2, 4, 8, 16, 32};

/// Returns the relative RMS error of O over all ranks, each processed on the keys of one rank after another.
/// A rank's keys and values are its tokens of K and V.
double error(const Spec& whole, const Inputs& inputs, const Reference& reference, bool rounds) {
  double squares = 0, of_reference = 0;
  const int dim = whole.head_dim;
  /// Returns a rank's tokens of a tensor, encoded.
  const auto of = [&](const std::vector<float>& tensor, const Tokens& tokens) {
    std::vector<float> some;
    for (int head = 0; head < whole.heads; ++head)
      for (int i = 0; i < tokens.total(); ++i) {
        const auto* row = &tensor[(std::size_t(head) * kTokens + std::size_t(tokens.place(i))) * dim];
        some.insert(some.end(), row, row + dim);
      }
    const std::vector<std::byte> bytes = encode(whole.dtype, some);
    Buffer buffer(Place::device, bytes.size());
    buffer.upload(bytes);
    return buffer;
  };
  Queue queue;
  Counter counter;
  for (int rank = 0; rank < whole.sharding.ranks; ++rank) {
    const Tokens queries = tokens_of(Order::contiguous, kTokens, rank, whole.sharding.ranks);
    const std::size_t rows = std::size_t(queries.total() * whole.heads);
    const Buffer q = of(inputs.q, queries), o(Place::device, rows * dim * kElementBytes),
                 lse(Place::device, rows * sizeof(float)), carried_lse(Place::device, lse.bytes());
    Buffer carried_o(Place::device, rows * dim * sizeof(float));
    std::vector<std::byte> bytes(carried_o.bytes());
    for (int hop = 0; hop < whole.sharding.ranks; ++hop) {
      const Tokens keys =
          tokens_of(Order::contiguous, kTokens, (rank - hop + whole.sharding.ranks) % whole.sharding.ranks,
                    whole.sharding.ranks);
      const Buffer k = of(inputs.k, keys), v = of(inputs.v, keys);
      Attention a{.spec = whole,
                  .queries = queries,
                  .keys = keys,
                  .shift = 0,
                  .q = q.data(),
                  .k = k.data(),
                  .v = v.data(),
                  .o = o.data(),
                  .lse = static_cast<float*>(lse.data()),
                  .counter = counter.get(),
                  .masked = false};
      a.spec.sharding.ranks = 1, a.spec.seqlen_q = queries.total(), a.spec.seqlen_k = keys.total();
      // From the second hop on every row has a carried result, and none is final: they are rounded to the
      // output type below.
      a.carried = {static_cast<float*>(carried_o.data()), static_cast<float*>(carried_lse.data()), 0,
                   hop == 0 ? queries.total() : 0, 0};
      attend(a, queue);
      queue.synchronize();
      if (!rounds) continue;
      carried_o.download(bytes);
      std::vector<float> values = decode(DType::f32, bytes);
      round_to(whole.dtype, values);
      carried_o.upload(encode(DType::f32, values));
    }
    carried_o.download(bytes);
    std::vector<float> values = decode(DType::f32, bytes);
    round_to(whole.dtype, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t head = i / (std::size_t(queries.total()) * dim),
                        row = i / dim % std::size_t(queries.total());
      const std::size_t at = (head * kTokens + std::size_t(queries.place(int(row)))) * dim + i % dim;
      squares += std::pow(values[i] - reference.o[at], 2);
      of_reference += std::pow(reference.o[at], 2);
    }
  }
  return std::sqrt(squares / of_reference);
}

void print() {
  Spec spec{{.heads = kHeads,
             .kv_heads = kHeads,
             .seqlen_q = kTokens,
             .seqlen_k = kTokens,
             .head_dim = 64,
             .dtype = DType::bf16,
             .scale = default_scale(64)}};
  const Inputs inputs = make_inputs(spec, InputKind::normal, 1);
  const Reference reference = make_reference(spec, inputs, all_rows(spec));
  std::printf("{\"tokens\": %d, \"errors\": [", kTokens);
  for (int ranks : kRanks) {
    spec.sharding.ranks = ranks;
    std::printf("%s\n  {\"ranks\": %d, \"float32\": %.2g, \"bf16\": %.2g}", ranks == 1 ? "" : ",", ranks,
                error(spec, inputs, reference, false), error(spec, inputs, reference, true));
  }
  std::printf("\n]}\n");
}

}  // namespace
}  // namespace flashbook::many_gpus

int main() { flashbook::many_gpus::print(); }
