// Chapter 10's step 6, the gradient in a ring.
#include "chapters/07_backward/host/chapter.h"
#include "chapters/10_many_gpus/host/chapter.h"
#include "tests/chapters/ranks.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kManyGpus;
const Operation operation_under_test = Operation::backward;
const Chapter* const chapter_before = nullptr;

namespace {

constexpr int kGradient = 6, kHopper = 5;  ///< the steps of chapters 10 and 7

// One rank alone computes what chapter 7's step 5 does: dK and dV bit by bit, dQ up to the order of its sums.
TEST_F(ChapterTest, OneRankIsChapter7) {
  for (const Shape& shape :
       {make_shape(333, 333, 128, true, DType::bf16, 4, 2), make_shape(200, 200, 64, true, DType::f16, 2, 1),
        make_shape(100, 300, 64, false), make_shape(130, 70, 256, true)}) {
    const Inputs inputs = inputs_of(shape, InputKind::drifting, 3);
    const Outputs want = run_once(kBackward, shape, inputs, kHopper),
                  got = run_once(kManyGpus, shape, inputs, kGradient);
    EXPECT_EQ(got.dk, want.dk) << describe(shape);
    EXPECT_EQ(got.dv, want.dv) << describe(shape);
  }
}

// What a rank's queries do not see gets zeros, also where no rank's queries see it.
TEST_F(ChapterTest, WhatIsNotSeenHasZeros) {
  const Shape shape = on_ranks(3, make_shape(90, 40, 64, true, DType::bf16, 2, 1));
  const Outputs outputs = run_once(kManyGpus, shape, inputs_of(shape, InputKind::normal, 5), kGradient);
  for (int64_t i = 0; i < shape.q_elements(); ++i) {
    const int64_t query = i / shape.head_dim % shape.seqlen_q;
    if (query < 50) {
      ASSERT_EQ(outputs.dq[std::size_t(i)], 0) << "query " << query;
    }
  }
}

// Sums travel in float32: the error is that of one rank, however many there are.
TEST_F(ChapterTest, TheErrorIsThatOfOneRank) {
  const Shape shape = make_shape(300, 300, 64, false, DType::bf16, 2, 2);
  const Inputs inputs = inputs_of(shape, InputKind::normal, 12);
  const Outputs one = run_once(kManyGpus, shape, inputs, kGradient);
  for (int ranks : {2, 8}) {
    const Outputs many = run_once(kManyGpus, on_ranks(ranks, shape), inputs, kGradient);
    for (const auto& [a, b] : {std::pair(&one.dk, &many.dk), {&one.dv, &many.dv}, {&one.dq, &many.dq}}) {
      double most = 0, largest = 0;
      for (std::size_t i = 0; i < a->size(); ++i) {
        most = std::max(most, double(std::abs((*a)[i] - (*b)[i])));
        largest = std::max(largest, double(std::abs((*a)[i])));
      }
      EXPECT_LE(most, largest / 128) << ranks << " ranks";  // the last digit of a bf16 may differ
    }
  }
}

TEST_F(ChapterTest, AnyOrderOfTokensIsRight) { expect_any_order_is_right({kGradient}); }

TEST(BackwardRing, IsAStepOfTheChapter) {
  EXPECT_EQ(kManyGpus.steps_of(Operation::backward), std::vector<int>{kGradient});
}

}  // namespace
}  // namespace flashbook::testing
