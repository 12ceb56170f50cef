#include "common/attention/spec.h"

#include <gtest/gtest.h>

#include <climits>
#include <cmath>

#include "tests/support/input_error.h"
#include "tests/support/specs.h"

namespace flashbook {
namespace {

std::string complaint(const Spec& spec) {
  return testing::input_error_of([&] { validate(spec); });
}

TEST(VisibleKeys, CausalMaskIsAlignedAtTheBottomRight) {
  const auto visible = [](int seqlen_q, int seqlen_k) {
    const Spec spec{{.seqlen_q = seqlen_q, .seqlen_k = seqlen_k}, Visibility::causal()};
    std::vector<int> keys;
    for (int query = 0; query < seqlen_q; ++query) keys.push_back(spec.visible_keys(query));
    return keys;
  };
  EXPECT_EQ(visible(3, 3), (std::vector{1, 2, 3}));
  EXPECT_EQ(visible(3, 5), (std::vector{3, 4, 5}));
  EXPECT_EQ(visible(5, 3), (std::vector{0, 0, 1, 2, 3}));
  EXPECT_EQ(visible(1, 4), (std::vector{4}));
}

TEST(VisibleKeys, SurvivesTheLargestLengths) {
  const Spec spec{{.seqlen_q = INT_MAX, .seqlen_k = INT_MAX}, Visibility::causal()};
  EXPECT_EQ(spec.visible_keys(0), 1);
  EXPECT_EQ(spec.visible_keys(INT_MAX - 1), INT_MAX);
}

TEST(Validate, AcceptsWhatIsValid) {
  EXPECT_EQ(complaint({}), "");
  EXPECT_EQ(complaint({{.heads = 8, .kv_heads = 2, .seqlen_q = 333, .seqlen_k = 1, .head_dim = 256}}), "");
  EXPECT_EQ(complaint({{.seqlen_q = 1 << 30, .scale = 1e-30f}}), "");
}

TEST(Validate, NamesTheOptionAndTheCure) {
  EXPECT_EQ(complaint({{.batch = 0}}), "--batch is 0: give at least 1");
  EXPECT_EQ(complaint({{.heads = -4}}), "--heads is -4: give at least 1");
  EXPECT_EQ(complaint({{.kv_heads = 0}}), "--kv-heads is 0: give at least 1");
  EXPECT_EQ(complaint({{.seqlen_q = 0}}), "--seqlen is 0: give at least 1");
  EXPECT_EQ(complaint({{.seqlen_k = 0}}), "--seqlen-k is 0: give at least 1");
  EXPECT_EQ(complaint({{.head_dim = 100}}),
            "--head-dim 100 is not supported: use a multiple of 8 up to 256, or 576 for latent attention");
  for (int head_dim : {-8, 0, 4, 264})
    EXPECT_TRUE(complaint({{.head_dim = head_dim}}).find("multiple of 8 up to 256") != std::string::npos);
  for (int head_dim : {8, 96, 248}) EXPECT_EQ(complaint({{.head_dim = head_dim}}), "");
  EXPECT_EQ(complaint({{.head_dim = kLatentKeyDim}}), "");
  EXPECT_EQ(complaint({{.head_dim = kLatentKeyDim, .dtype = DType::e4m3}}),
            "latent queries have no scales, which e4m3 needs: give f32, f16 or bf16");
  Spec strided{{.head_dim = kLatentKeyDim}};
  strided.layout.v = {576, 576, 576};
  EXPECT_EQ(complaint(strided), "in latent attention V is the first columns of K: give strides for K only");
}

TEST(Validate, ListsTheDivisors) {
  const auto complain = [](int heads, int kv_heads) {
    return complaint({{.heads = heads, .kv_heads = kv_heads}});
  };
  EXPECT_EQ(complain(8, 3), "--kv-heads 3 does not divide --heads 8: use 1, 2, 4 or 8");
  EXPECT_EQ(complain(8, 16), "--kv-heads 16 does not divide --heads 8: use 1, 2, 4 or 8");
  EXPECT_EQ(complain(1, 2), "--kv-heads 2 does not divide --heads 1: use 1");
  EXPECT_EQ(complain(7, 2), "--kv-heads 2 does not divide --heads 7: use 1 or 7");
  EXPECT_EQ(complain(9, 2), "--kv-heads 2 does not divide --heads 9: use 1, 3 or 9");
  EXPECT_EQ(complain(720, 7),
            "--kv-heads 7 does not divide --heads 720: use 1, 2, 3, 4, 5, 6, 8, ... or 720");
  EXPECT_EQ(complain(INT_MAX, 2), "--kv-heads 2 does not divide --heads 2147483647: use 1 or 2147483647");
}

TEST(Validate, RefusesScalesThatAreNoScales) {
  EXPECT_EQ(complaint({{.scale = 0}}), "--scale is 0: give a finite number above 0");
  EXPECT_EQ(complaint({{.scale = -0.5f}}), "--scale is -0.5: give a finite number above 0");
  EXPECT_EQ(complaint({{.scale = INFINITY}}), "--scale is inf: give a finite number above 0");
  EXPECT_EQ(complaint({{.scale = NAN}}), "--scale is nan: give a finite number above 0");
}

TEST(Validate, LimitsTensorsTo2To40Elements) {
  Spec spec{
      {.batch = 1 << 10, .heads = 1 << 4, .kv_heads = 1 << 4, .seqlen_q = 1 << 20, .seqlen_k = 1 << 20}};
  EXPECT_EQ(complaint(spec), "");
  spec.seqlen_q += 1;
  EXPECT_EQ(complaint(spec),
            "a tensor has more than 2^40 elements: give a smaller --batch, --heads or --seqlen");
  spec.seqlen_q = 1;
  spec.seqlen_k += 1;
  EXPECT_EQ(complaint(spec),
            "a tensor has more than 2^40 elements: give a smaller --batch, --kv-heads or --seqlen-k");
  EXPECT_NE(complaint({{.batch = INT_MAX, .heads = INT_MAX, .seqlen_q = INT_MAX, .head_dim = 256}}), "")
      << "counts whose product overflows";
}

}  // namespace
}  // namespace flashbook
