#include "common/attention/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/attention/check.h"
#include "common/attention/inputs.h"
#include "common/numeric/float_formats.h"
#include "tests/support/direct.h"
#include "tests/support/input_error.h"

namespace flashbook {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3};

Spec spec_of(int seqlen_q, int seqlen_k, DType type = DType::f32) {
  return {{.seqlen_q = seqlen_q, .seqlen_k = seqlen_k, .dtype = type}};
}

Reference reference_of(const Spec& spec, const Inputs& inputs) {
  return make_reference(spec, inputs, all_rows(spec));
}

void expect_finite_bounds(const Reference& reference) {
  for (double bound : reference.o_bound) ASSERT_TRUE(std::isfinite(bound));
  for (double bound : reference.lse_bound) ASSERT_TRUE(std::isfinite(bound));
}

TEST(Rows, SampleHasCornersAndIsDistinctAndAscending) {
  const Spec spec{{.batch = 2, .heads = 3, .seqlen_q = 100}};
  for (uint64_t seed : {1, 2, 3}) {
    const std::vector<int64_t> rows = sample_rows(spec, 50, seed);
    ASSERT_EQ(rows.size(), 50u);
    EXPECT_TRUE(std::ranges::is_sorted(rows, std::less_equal()) &&
                std::ranges::adjacent_find(rows) == rows.end());
    EXPECT_GE(rows.front(), 0);
    EXPECT_LT(rows.back(), 600);
    for (int64_t corner : {0, 99, 500, 599}) EXPECT_TRUE(std::ranges::binary_search(rows, corner)) << corner;
  }
  EXPECT_EQ(sample_rows(spec, 50, 1), sample_rows(spec, 50, 1));
  EXPECT_NE(sample_rows(spec, 50, 1), sample_rows(spec, 50, 2));
}

TEST(Oracle, AgreesWithTheDefinition) {
  for (bool causal : {false, true})
    for (auto [seqlen_q, seqlen_k] : {std::pair{7, 7}, {70, 130}, {130, 70}, {1, 65}, {33, 1}})
      for (const auto& [head_dim, value_dim] : {std::pair{64, 64},
                                                {128, 128},
                                                {192, 128},
                                                {64, 80},
                                                {256, 256},
                                                {kLatentKeyDim, kLatentValueDim}}) {
        Spec spec = spec_of(seqlen_q, seqlen_k);
        spec.batch = 2, spec.heads = 4, spec.kv_heads = 2;
        spec.head_dim = head_dim, spec.value_dim = value_dim;
        spec.visibility = Visibility::causal_if(causal), spec.scale = 0.3f;
        const Inputs inputs = make_inputs(spec, InputKind::normal, 1);
        const Reference reference = reference_of(spec, inputs);
        for (int64_t row : sample_rows(spec, 30, 2)) {
          const int64_t head = row / seqlen_q;
          const testing::DirectRow direct(spec, inputs, int(head / 4), int(head % 4), int(row % seqlen_q));
          const int columns = spec.value_dim;
          for (int c = 0; c < columns; ++c)
            ASSERT_NEAR(reference.o[row * columns + c], double(direct.o[c]), 1e-13) << describe(spec);
          if (std::isinf(direct.lse))
            ASSERT_EQ(reference.lse[row], -INFINITY) << describe(spec);
          else
            ASSERT_NEAR(reference.lse[row], double(direct.lse), 1e-13) << describe(spec);
        }
      }
}

TEST(Oracle, OfSomeRowsIsThatOfAllRows) {
  Spec spec = spec_of(150, 200, DType::bf16);
  spec.heads = 4, spec.kv_heads = 2, spec.visibility = Visibility::causal();
  const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
  const Reference all = reference_of(spec, inputs);
  const Reference some = make_reference(spec, inputs, sample_rows(spec, 40, 4));
  ASSERT_EQ(some.rows, sample_rows(spec, 40, 4));
  for (std::size_t i = 0; i < some.rows.size(); ++i) {
    EXPECT_EQ(some.lse[i], all.lse[some.rows[i]]);
    for (int c = 0; c < 64; ++c) EXPECT_EQ(some.o[i * 64 + c], all.o[some.rows[i] * 64 + c]);
  }
}

TEST(Oracle, RowsWithoutKeysAreZero) {
  for (DType type : kTypes) {
    Spec spec = spec_of(200, 20, type);
    spec.visibility = Visibility::causal();
    const Inputs inputs = make_inputs(spec, InputKind::normal, 11);
    const Reference reference = reference_of(spec, inputs);
    for (int i = 0; i < 180; ++i) {
      EXPECT_EQ(reference.lse[i], -INFINITY);
      for (int c = 0; c < 64; ++c) EXPECT_EQ(reference.o[i * 64 + c], 0);
    }
    EXPECT_TRUE(std::isfinite(reference.lse[180]));
    EXPECT_EQ(reference.o_bound[0], 0) << "zeros are exact";
    expect_finite_bounds(reference);
  }
}

TEST(Oracle, SurvivesLargeScores) {
  for (DType type : kTypes) {
    Spec spec = spec_of(70, 70, type);
    spec.visibility = Visibility::causal();
    const Reference reference = reference_of(spec, make_inputs(spec, InputKind::large_scores, 14));
    EXPECT_TRUE(std::ranges::all_of(reference.o, [](double o) { return std::isfinite(o); }));
    EXPECT_TRUE(std::ranges::all_of(reference.lse, [](double lse) { return std::abs(lse) > 1e4; }));
    expect_finite_bounds(reference);
  }
}

/// Computes plain attention as the header defines it: float sums, S and P rounded, O rounded.
Outputs plain_attention(const Spec& spec, const Inputs& inputs) {
  const auto rounded = [](DType type, float value) {
    round_to(type, {&value, 1});
    return value;
  };
  const bool fp8 = spec.dtype == DType::e4m3;
  Outputs outputs{std::vector<float>(spec.q_elements()), std::vector<float>(spec.q_rows())};
  for (int64_t i = 0; i < spec.seqlen_q; ++i) {
    std::vector<float> s(spec.seqlen_k);
    for (int64_t j = 0; j < spec.seqlen_k; ++j) {
      for (int c = 0; c < 64; ++c) s[j] += inputs.q[i * 64 + c] * inputs.k[j * 64 + c];
      s[j] = rounded(fp8 ? DType::bf16 : spec.dtype, s[j] * spec.scale);
    }
    const float largest = std::ranges::max(s);
    float sum = 0, sum_of_stored = 0;
    for (float score : s) {
      const float p = std::exp(score - largest);
      sum += p, sum_of_stored += fp8 ? rounded(DType::e4m3, p) : p;
    }
    for (int64_t j = 0; j < spec.seqlen_k; ++j) {
      const float p = std::exp(s[j] - largest);
      const float stored = fp8 ? rounded(DType::e4m3, p) / sum : rounded(spec.dtype, p / sum);
      for (int c = 0; c < 64; ++c) outputs.o[i * 64 + c] += stored * inputs.v[j * 64 + c];
    }
    outputs.lse[i] = largest + std::log(sum_of_stored);
  }
  round_to(output_type(spec.dtype), outputs.o);
  return outputs;
}

TEST(Bounds, RefuseFiveTimesThePlainError) {
  for (DType type : {DType::f16, DType::bf16, DType::e4m3}) {
    const Spec spec = spec_of(100, 200, type);
    const Inputs inputs = make_inputs(spec, InputKind::normal, 18);
    const Reference reference = reference_of(spec, inputs);
    Outputs outputs = plain_attention(spec, inputs);
    for (std::size_t i = 0; i < outputs.o.size(); ++i)
      outputs.o[i] = float(reference.o[i] + 5 * (outputs.o[i] - reference.o[i]));
    // e4m3 has an additional floor for the rounding of P: add it to the error.
    const double floor = type == DType::e4m3 ? 0x1p-4 : 0;
    for (std::size_t i = 0; i < outputs.lse.size(); ++i) {
      const double error = outputs.lse[i] - reference.lse[i];
      outputs.lse[i] = float(reference.lse[i] + 5 * error + std::copysign(floor, error));
    }
    const CheckResult result = check(spec, reference, outputs);
    EXPECT_FALSE(result.o.ok) << name_of(type);
    EXPECT_FALSE(result.lse.ok) << name_of(type);
  }
}

}  // namespace
}  // namespace flashbook
