/// \file
/// For chapter 10's steps of every operation: any number of ranks, in all modes of the simulator. Include
/// this after conformance.h or forward.h.
#pragma once
#include <string>
#include <tuple>
#include <vector>

#include "chapters/10_many_gpus/host/ranks.h"
#include "common/attention/visibility.h"
#include "tests/chapters/conformance.h"
#include "tests/support/specs.h"

namespace flashbook::testing {

inline Spec on_ranks(int ranks, Spec spec) {
  spec.sharding.ranks = ranks;
  return spec;
}

/// Returns problems with lengths not divisible by the number of ranks, fewer tokens than ranks, more keys
/// than queries and vice versa (so that queries, and whole ranks, see nothing), numbers of key heads not
/// divisible by the number of ranks.
inline std::vector<Spec> specs_of_ranks() {
  std::vector<Spec> specs = {
      make_spec(333, 333, 128, true, DType::bf16, 2, 1), make_spec(130, 130, 256, true),
      make_spec(257, 257, 64, false, DType::f16, 3, 3),  make_spec(5, 5, 64, true, DType::bf16, 2, 2),
      make_spec(300, 90, 64, true, DType::f16, 2, 1),    make_spec(90, 300, 128, true, DType::bf16, 2, 2),
      make_spec(1, 700, 64, true, DType::bf16, 8, 1),    make_spec(700, 3, 64, true),
      make_spec(200, 200, 256, false, DType::f16, 2, 2), make_spec(150, 151, 64, false)};
  specs[0].batch = 2;
  return specs;
}

/// Checks that a step is also right with any distribution of tokens, and with multiprocessors left free.
inline void expect_right_in_any_order(Spec spec, int step) {
  const Inputs inputs = inputs_of(spec, InputKind::drifting, 4);
  const Expected expected(operation_under_test, spec, inputs, all_rows(spec));
  for (many_gpus::Order order : many_gpus::kOrders) {
    spec.sharding.order = order;
    ASSERT_EQ(chapter_under_test.refusal(step, spec), "") << describe(spec);
    const UploadedInputs uploaded(operation_under_test, spec, inputs, device::Place::device);
    const Call call(operation_under_test, spec, uploaded, 0, [&](const Tensors& tensors) {
      many_gpus::Ranks ranks(spec, tensors, step, {.margin = 2});
      ranks.run();
      ranks.collect();
    });
    call.run();
    EXPECT_EQ(describe_failure(expected.judge(call.download()), "the oracle"), "")
        << describe(spec) << ", step " << step;
  }
}

/// Checks steps that support any order, on any number of ranks, in all modes: lengths not divisible by the
/// number of ranks, fewer tokens than ranks, queries that see nothing, more keys than queries.
inline void expect_any_order_is_right(std::initializer_list<int> steps) {
  int mode = 0;  // alternates, so that all three occur with every number of ranks
  for (int ranks : {2, 3, 8})
    for (const Spec& spec : {make_spec(150, 211, 64, true, DType::bf16, 2, 1), make_spec(5, 5, 64, true),
                             make_spec(90, 40, 64, true), make_spec(70, 70, 64, false)}) {
      const InBackground in_mode(Async(mode++ % 3), uint64_t(ranks));
      for (int step : steps) expect_right_in_any_order(on_ranks(ranks, spec), step);
    }
}

// ---- packed documents

/// Returns documents with these lengths of queries and of keys.
inline Visibility packed(const std::vector<int>& queries, const std::vector<int>& keys, bool causal) {
  Visibility v = Visibility::causal_if(causal);
  v.documents = {{0}, {0}};
  for (int length : queries) v.documents.first_query.push_back(v.documents.first_query.back() + length);
  for (int length : keys) v.documents.first_key.push_back(v.documents.first_key.back() + length);
  return v;
}

/// Returns the problem of these documents, with as many keys as queries in each unless `keys` are given.
inline Spec in_documents(int head_dim, bool causal, const std::vector<int>& queries,
                         std::vector<int> keys = {}, int heads = 2, int kv_heads = 1) {
  if (keys.empty()) keys = queries;
  const Visibility v = packed(queries, keys, causal);
  Spec spec = make_spec(v.documents.first_query.back(), v.documents.first_key.back(), head_dim, causal,
                        DType::bf16, heads, kv_heads);
  spec.visibility = v;
  return spec;
}

/// Returns problems with documents that straddle ranks, one with all tokens, one per token, longer and
/// shorter than a tile, without queries or without keys, with more keys than queries and vice versa.
inline std::vector<Spec> specs_of_documents() {
  const std::vector<int> queries = {0, 20, 130, 1, 0, 70}, keys = {40, 0, 90, 170, 10, 3};
  std::vector<Spec> specs = {in_documents(64, true, {70, 5, 190, 35}),
                             in_documents(64, false, {140, 30, 30}),
                             in_documents(128, true, {211}),
                             in_documents(64, true, std::vector<int>(37, 1), {}, 2, 2),
                             in_documents(64, true, queries, keys),
                             in_documents(64, false, queries, keys),
                             in_documents(256, true, {90, 60}, {60, 90}, 1, 1),
                             in_documents(64, true, {2, 1})};
  specs[0].batch = 2;
  specs[1].dtype = DType::f16;
  return specs;
}

/// Compares steps with documents, in every order that they support, with the oracle.
inline void expect_documents_are_right(const Spec& spec, std::initializer_list<int> steps) {
  const Inputs inputs = inputs_of(spec, InputKind::drifting, 4);
  const Expected expected(operation_under_test, spec, inputs, all_rows(spec));
  const UploadedInputs uploaded(operation_under_test, spec, inputs, device::Place::device);
  for (int step : steps)
    for (many_gpus::Order order : many_gpus::kOrders) {
      Spec ordered = spec;
      ordered.sharding.order = order;
      if (!chapter_under_test.refusal(step, ordered).empty()) continue;
      const Call call(chapter_under_test, ordered, uploaded, step);
      call.run();
      EXPECT_EQ(describe_failure(expected.judge(call.download()), "the oracle"), "")
          << describe(ordered) << ", step " << step;
    }
}

/// Returns the position in the sequence of a rank's token.
inline int place_of(const many_gpus::OfRank& of, int token, many_gpus::Order order, int ranks) {
  const int at = of.tokens.place(token);
  return order == many_gpus::Order::striped ? at * ranks + of.rank : at;
}

/// A rank's queries, and the owner of the keys that it holds at each hop of a ring.
struct HopsOfRank {
  many_gpus::OfRank queries;
  std::vector<many_gpus::OfRank> keys;

  HopsOfRank(const Spec& spec, many_gpus::Order order, int rank, int ranks)
      : queries{many_gpus::tokens_of(order, spec.seqlen_q, rank, ranks), rank} {
    for (int hop = 0; hop < ranks; ++hop) {
      const int owner = (rank - hop + ranks) % ranks;
      keys.push_back({many_gpus::tokens_of(order, spec.seqlen_k, owner, ranks), owner});
    }
  }
};

/// Returns whether some query of a rank sees some key of a hop, by the definition of the mask.
inline bool sees_some(const Spec& spec, many_gpus::Order order, const HopsOfRank& rank, int hop) {
  const many_gpus::OfRank& held = rank.keys[std::size_t(hop)];
  for (int token = 0; token < rank.queries.tokens.total(); ++token)
    for (int key = 0; key < held.tokens.total(); ++key)
      if (sees(spec, 0, 0, place_of(rank.queries, token, order, spec.sharding.ranks),
               place_of(held, key, order, spec.sharding.ranks)))
        return true;
  return false;
}

/// Returns the number of kernels that all ranks together launch for a step. Empty on a GPU.
inline std::optional<uint64_t> kernels_of(const Spec& spec, const Inputs& inputs, int step) {
  const UploadedInputs uploaded(operation_under_test, spec, inputs, device::Place::device);
  const Call call(chapter_under_test, spec, uploaded, step);
  const std::optional<uint64_t> before = kernels_launched();
  call.run();
  const std::optional<uint64_t> after = kernels_launched();
  if (!before) return {};
  return *after - *before;
}

/// Returns shapes in which a rank sees nothing at some hops, but every query sees a key: documents that fit a
/// rank or straddle two, and one under a causal mask.
inline std::vector<Spec> specs_with_empty_hops() {
  std::vector<Spec> specs;
  for (int ranks : {3, 4}) {
    specs.push_back(on_ranks(ranks, in_documents(64, true, std::vector<int>(ranks, 40), {}, 1, 1)));
    specs.push_back(on_ranks(ranks, in_documents(64, false, {10, 50, 70, 29}, {}, 1, 1)));
    specs.push_back(on_ranks(ranks, make_spec(150, 150, 64, true, DType::bf16, 1, 1)));
  }
  return specs;
}

/// Any number of ranks, in the simulator's three modes. Every number runs all shapes, a third of them in each
/// mode; a GPU has no modes, and runs the thirds one after another.
class Modes : public ChapterTest, public ::testing::WithParamInterface<std::tuple<int, Async>> {};

TEST_P(Modes, AllShapesAreRight) {
  const auto [ranks, async] = GetParam();
  const InBackground mode(async, uint64_t(ranks));
  const std::vector<Spec> specs = specs_of_ranks();
  for (std::size_t i = std::size_t(async); i < specs.size(); i += 3) {
    const Spec divided = on_ranks(ranks, specs[i]);
    expect_right(divided, inputs_of(divided, InputKind::drifting, 7));
  }
}

inline std::string name_of_mode(const ::testing::TestParamInfo<std::tuple<int, Async>>& info) {
  const char* const names[] = {"eager", "lazy", "random"};
  const auto [ranks, async] = info.param;
  return "on" + std::to_string(ranks) + names[int(async)];
}

INSTANTIATE_TEST_SUITE_P(Ranks, Modes,
                         ::testing::Combine(::testing::Values(1, 3, 8),
                                            ::testing::Values(Async::eager, Async::lazy, Async::random)),
                         name_of_mode);

class TracedRanks : public ChapterTest {};

TEST_F(TracedRanks, BreakNoRuleOfMemory) {
  for (bool causal : {false, true}) {
    const Spec spec = on_ranks(3, make_spec(130, 200, 64, causal, DType::bf16, 2, 1));
    expect_right(spec, inputs_of(spec, InputKind::normal, 3));
  }
}

}  // namespace flashbook::testing
