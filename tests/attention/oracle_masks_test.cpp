// The oracle with every visibility and score function, and with pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/attention/check.h"
#include "common/attention/cost.h"
#include "common/attention/inputs.h"
#include "common/features/dropout/dropout.h"
#include "common/features/pages/pages.h"
#include "tests/support/direct.h"
#include "tests/support/input_error.h"
#include "tests/support/masks.h"

namespace flashbook {
namespace {

Reference reference_of(const Spec& spec, const Inputs& inputs) {
  return make_reference(spec, inputs, all_rows(spec));
}

void expect_right(const Spec& spec, const Inputs& inputs) {
  const Reference reference = reference_of(spec, inputs);
  for (int64_t row = 0; row < spec.q_rows(); ++row) {
    const int64_t head = row / spec.seqlen_q;
    const testing::DirectRow direct(spec, inputs, int(head / spec.heads), int(head % spec.heads),
                                    int(row % spec.seqlen_q));
    for (int c = 0; c < spec.head_dim; ++c)
      ASSERT_NEAR(reference.o[row * spec.head_dim + c], double(direct.o[c]), 1e-13)
          << describe(spec) << ", row " << row;
    if (std::isinf(direct.lse)) {
      ASSERT_EQ(reference.lse[row], -INFINITY) << describe(spec) << ", row " << row;
      ASSERT_EQ(reference.o_bound[row], 0) << "zeros are exact";
    } else {
      ASSERT_NEAR(reference.lse[row], double(direct.lse), 1e-13) << describe(spec) << ", row " << row;
      ASSERT_TRUE(std::isfinite(reference.o_bound[row]) && std::isfinite(reference.lse_bound[row]));
    }
  }
}

TEST(OracleMasks, AgreeWithTheDefinitionUnderRandomMasks) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    Spec spec = testing::random_mask(random);
    spec.dtype = DType::f32;
    if (i % 3 == 1) spec.score.softcap = 2;
    if (i % 4 == 1) spec.score.alibi = {0.5f, 0.25f, 0.125f, 0};
    if (i % 8 == 5) spec.score.alibi = testing::slopes_by_sequence(spec);
    if (i % 4 == 2) spec.score.bias = testing::random_bias(random, spec.heads, i % 5);
    if (i % 5 == 1) spec.score.dropout = 0.3f, spec.score.seed = 0x123456789abcdef0 + i;
    expect_right(spec, make_inputs(spec, InputKind::normal, i));
  }
}

TEST(OracleMasks, ReadNothingThatIsHidden) {
  // Two documents; the second one's keys and values are NaN, and its queries see only those.
  Spec spec{{.seqlen_q = 90, .seqlen_k = 90}, {.documents = {{0, 50, 90}, {0, 50, 90}}}};
  Inputs inputs = make_inputs(spec, InputKind::normal, 1);
  const Reference before = reference_of(spec, inputs);
  std::fill(inputs.k.begin() + 50 * 64, inputs.k.end(), NAN);
  std::fill(inputs.v.begin() + 50 * 64, inputs.v.end(), NAN);
  const Reference after = reference_of(spec, inputs);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(after.lse[i], before.lse[i]);
    EXPECT_EQ(after.o[i * 64], before.o[i * 64]);
  }
  EXPECT_TRUE(std::isnan(after.lse[50]));
}

// Matches Random123's known answers (its file kat_vectors), and drops the requested fraction, also when the
// seed, batch entry, head, query and group of 32 keys change.
TEST(Dropout, LeavesOutAsManyAsAskedForByPhilox) {
  const auto words = [](uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t key0, uint32_t key1) {
    const PhiloxWords made = philox4x32_10({{a, b, c, d}}, key0, key1);
    return std::vector<uint32_t>(std::begin(made.word), std::end(made.word));
  };
  using Words = std::vector<uint32_t>;
  EXPECT_EQ(words(0, 0, 0, 0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(~0u, ~0u, ~0u, ~0u, ~0u, ~0u), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));

  const Dropout dropout(0.1f, 7), other(0.1f, uint64_t(7) << 32);
  EXPECT_NEAR(dropout.factor, 1 / 0.9, 1e-5);
  int left_out = 0, together[5] = {}, pairs = 0;
  for (int query = 0; query < 64; ++query)
    for (int key = 0; key < 1024; ++key, ++pairs) {
      if (dropout.keeps(1, 2, query, key)) continue;
      ++left_out;
      together[0] += !dropout.keeps(0, 2, query, key);
      together[1] += !dropout.keeps(1, 3, query, key);
      together[2] += !dropout.keeps(1, 2, query + 1, key);
      together[3] += !dropout.keeps(1, 2, query, key + 32);
      together[4] += !other.keeps(1, 2, query, key);
    }
  EXPECT_NEAR(left_out, 0.1 * pairs, 5 * std::sqrt(0.09 * pairs));
  for (const int both : together) EXPECT_NEAR(both, 0.01 * pairs, 5 * std::sqrt(0.01 * pairs));
  EXPECT_LT(Dropout(std::nextafter(1.0f, 0.0f), 7).threshold, 65536u) << "somebody is kept";
}

/// Returns sequences of 0, 1, 16, 17 and 37 keys, in pages of 16; 4 queries each.
Spec cache(bool causal) {
  Spec spec{{.batch = 5, .heads = 4, .kv_heads = 2, .seqlen_q = 4, .seqlen_k = 37}};
  spec.visibility = Visibility::causal_if(causal);
  spec.visibility.lengths = {0, 1, 16, 17, 37};
  spec.paging = {.rows = 16, .pages = 20, .table = std::vector<int>(15)};
  for (int i = 0; i < 15; ++i) spec.paging.table[i] = (7 * i + 3) % 20;  // all different
  return spec;
}

TEST(Decode, IsAttentionToTheGatheredPages) {
  for (bool causal : {false, true}) {
    const Spec spec = cache(causal), dense = without_pages(spec);
    const Inputs gathered = make_inputs(dense, InputKind::normal, 6);
    const Inputs paged = scatter_pages(spec, gathered);
    EXPECT_EQ(int64_t(paged.k.size()), elements_of(spec, TensorId::k));
    expect_right(dense, gathered);
    const Reference reference = reference_of(spec, paged);
    EXPECT_EQ(reference.o, reference_of(dense, gathered).o);
    EXPECT_EQ(reference.lse, reference_of(dense, gathered).lse);
    for (int row = 0; row < 16; ++row) {
      EXPECT_EQ(reference.lse[row], -INFINITY) << "the first sequence is empty";
      EXPECT_EQ(reference.o[row * 64], 0);
    }
    EXPECT_EQ(std::isinf(reference.lse[16]), causal) << "of 4 queries, the last sees one key";
    EXPECT_TRUE(std::isfinite(reference.lse[19]));
  }
}

TEST(Decode, SequencesMayShareAPage) {
  Spec spec = cache(false);
  spec.visibility.lengths = {16, 16, 16, 16, 16};
  spec.paging.table.assign(15, 4);
  Spec one = spec;
  one.batch = 1, one.seqlen_k = 16, one.visibility = {}, one.paging = {};
  Inputs shared = make_inputs(one, InputKind::normal, 9);
  Inputs paged = scatter_pages(spec, make_inputs(without_pages(spec), InputKind::normal, 10));
  std::copy(shared.k.begin(), shared.k.end(), paged.k.begin() + 4 * 2 * 16 * 64);
  std::copy(shared.v.begin(), shared.v.end(), paged.v.begin() + 4 * 2 * 16 * 64);
  const Reference all = reference_of(spec, paged);
  shared.q.assign(paged.q.end() - 4 * 4 * 64, paged.q.end());  // the last sequence's queries
  const Reference last = reference_of(one, shared);
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(all.lse[64 + i], last.lse[i], 1e-13);
}

// Also with latent keys in e4m3, whose rows have 656 bytes.
TEST(Indices, CountKeysAsOftenAsTheyAreListed) {
  Spec spec{{.seqlen_q = 3, .seqlen_k = 5}, {.indices = {4, {-1, -1, -1, -1, 3, 0, 3, 3, 4, -1, 1, 4}}}};
  validate(spec);
  EXPECT_EQ(visible_pairs(spec), 4);
  EXPECT_EQ(describe(spec), "batch 1, heads 1, N 3 x 5, d 64, lists of 4 keys, bf16");
  const double lists = 4 * 12;
  EXPECT_EQ(compulsory_bytes(spec), 2 * 64 * (2 * 3 + 2 * 4) + 4 * 3 + lists) << "key 2 is not listed";
  expect_right(spec, make_inputs(spec, InputKind::normal, 1));
  spec = with_e4m3_cache(with_latent_keys(spec));
  EXPECT_EQ(compulsory_bytes(spec), 2 * 3 * (576 + 512) + 656 * 4 + 4 * 3 + lists);
  const Inputs inputs = make_inputs(spec, InputKind::normal, 1);
  EXPECT_EQ(encode_inputs(spec, inputs).k.bytes.size(), 5u * 656);
  Inputs again = inputs;
  round_inputs(spec, again);
  EXPECT_EQ(again.k, inputs.k);
}

TEST(Indices, AreKeysOrNone) {
  const auto complaint = [](Array<int> keys) {
    return testing::input_error_of([&] {
      validate({{.seqlen_q = 1, .seqlen_k = 5}, {.indices = {2, keys}}});
    });
  };
  EXPECT_EQ(complaint({4, -1}), "");
  EXPECT_EQ(complaint({0, 5}), "indices has key 5: give 0 to 4, or -1 for none");
  EXPECT_EQ(complaint({0, -2}), "indices has key -2: give 0 to 4, or -1 for none");
  EXPECT_EQ(complaint({0}), "indices has 1 numbers: give 2, as many for each query as a list has");
}

TEST(Decode, RefusesTablesThatDoNotFit) {
  const auto complaint = [](auto change) {
    Spec spec = cache(false);
    change(spec);
    return testing::input_error_of([&] { validate(spec); });
  };
  EXPECT_EQ(complaint([](Spec&) {}), "");
  EXPECT_EQ(complaint([](Spec& s) { s.paging.pages = 0; }),
            "there are 0 pages of 16 rows: give at least 1 of each");
  EXPECT_EQ(complaint([](Spec& s) { s.dtype = DType::e4m3; }),
            "queries in e4m3 do not support pages: give f16 or bf16; the cache may be e4m3");
  EXPECT_EQ(complaint([](Spec& s) { s.paging.table.pop_back(); }),
            "the page table has 14 entries: give 15, batch times the pages of seqlen_k");
  EXPECT_EQ(complaint([](Spec& s) { s.paging.table[12] = 20; }),
            "the page table names page 20 in sequence 4: give 0 to 19");
  EXPECT_EQ(complaint([](Spec& s) { s.paging.table[0] = -1; }), "") << "an empty sequence reads no entry";
  EXPECT_EQ(complaint([](Spec& s) { s.score.softcap = -1; }),
            "the softcap is not a finite number of at least 0: give one, or 0 for none");
  EXPECT_EQ(complaint([](Spec& s) { s.score.alibi = {1}; }),
            "there are 1 slopes: give 4, one per head, or 20, one per head of each sequence");
  EXPECT_EQ(complaint([](Spec& s) {
              s.score.alibi = {1, 1, 1, NAN};
            }),
            "a slope is not finite: give finite slopes");
  EXPECT_EQ(complaint([](Spec& s) {
              s.score.bias = {.reach = 1, .values = {1, 2, 3}};
            }),
            "the bias has 3 values: give 12, 2 * reach + 1 for each head");
  EXPECT_EQ(complaint([](Spec& s) {
              s.score.bias = {.reach = 0, .values = {1, 2, NAN, 3}};
            }),
            "a bias is not finite: give finite biases");
  for (float dropout : {-0.1f, 1.0f, NAN})
    EXPECT_EQ(complaint([&](Spec& s) { s.score.dropout = dropout; }),
              "the dropout must be at least 0 and below 1: give such a number; 0 means none");
}

TEST(OracleMasks, RefusePackedQueries) {
  Spec spec;
  spec.batching.packed_queries = 1;
  EXPECT_EQ(testing::input_error_of([&] { make_reference(spec, {}, {}); }),
            "the oracle does not support packed queries: compare each sequence on its own");
}

TEST(OracleMasks, KeysBehindPaddingsAreTheOnlyOnes) {
  Spec padded{{.batch = 2, .heads = 2, .kv_heads = 2, .seqlen_q = 3, .seqlen_k = 9}};
  padded.visibility = {.window = {.right = 0}, .lengths = {5, 7}};
  padded.paging.paddings = {4, 1};
  Inputs inputs = make_inputs(padded, InputKind::normal, 8);
  const Reference with_paddings = reference_of(padded, inputs);
  Spec plain = padded;
  plain.paging = {};
  for (std::vector<float>* tensor : {&inputs.k, &inputs.v})
    for (int64_t head = 0; head < 4; ++head) {
      const auto first = tensor->begin() + head * 9 * 64;
      std::rotate(first, first + (head < 2 ? 4 : 1) * 64, first + 9 * 64);
    }
  const Reference without = reference_of(plain, inputs);
  EXPECT_EQ(with_paddings.o, without.o);
  EXPECT_EQ(with_paddings.lse, without.lse);
  padded.paging.paddings = {5, 1};
  EXPECT_EQ(testing::input_error_of([&] { validate(padded); }),
            "sequence 0 has 5 rows before its 5 keys: give at least 0, and together at most 9");
}

}  // namespace
}  // namespace flashbook
