/// \file
/// For chapter 10's steps of every operation: any number of ranks, in all modes of the simulator. A test file
/// includes this after conformance.h or forward.h.
#pragma once
#include <string>
#include <tuple>
#include <vector>

#include "chapters/10_many_gpus/host/ranks.h"
#include "tests/chapters/conformance.h"
#include "tests/support/shapes.h"

namespace flashbook::testing {

inline Shape on_ranks(int ranks, Shape shape) {
  shape.ranks = ranks;
  return shape;
}

/// Lengths that ranks do not divide, fewer tokens than ranks, more keys than queries and the other way round
/// (so that queries, and whole ranks, see nothing), key heads that ranks do not divide.
inline std::vector<Shape> shapes_of_ranks() {
  std::vector<Shape> shapes = {
      make_shape(333, 333, 128, true, DType::bf16, 2, 1), make_shape(130, 130, 256, true),
      make_shape(257, 257, 64, false, DType::f16, 3, 3),  make_shape(5, 5, 64, true, DType::bf16, 2, 2),
      make_shape(300, 90, 64, true, DType::f16, 2, 1),    make_shape(90, 300, 128, true, DType::bf16, 2, 2),
      make_shape(1, 700, 64, true, DType::bf16, 8, 1),    make_shape(700, 3, 64, true),
      make_shape(200, 200, 256, false, DType::f16, 2, 2), make_shape(150, 151, 64, false)};
  shapes[0].batch = 2;
  return shapes;
}

/// With tokens dealt out in any order, and multiprocessors left free, a step is right, too.
inline void expect_right_in_any_order(Shape shape, int step) {
  const Inputs inputs = inputs_of(shape, InputKind::drifting, 4);
  const Expected expected(operation_under_test, shape, inputs, all_rows(shape));
  for (many_gpus::Order order : many_gpus::kOrders) {
    shape.order = order;
    ASSERT_EQ(chapter_under_test.step(step).why_not(shape), "") << describe(shape);
    const UploadedInputs uploaded(operation_under_test, shape, inputs, device::Place::device);
    const Call call(operation_under_test, shape, uploaded, 0, [&](const Tensors& tensors) {
      many_gpus::Ranks ranks(shape, tensors, step, {.margin = 2});
      ranks.run();
      ranks.collect();
    });
    call.run();
    EXPECT_EQ(describe_failure(expected.judge(call.download()), "the oracle"), "")
        << describe(shape) << ", step " << step;
  }
}

/// Steps that take any order, on any number of ranks, in all modes: lengths that ranks do not divide, fewer
/// tokens than ranks, queries that see nothing, more keys than queries.
inline void expect_any_order_is_right(std::initializer_list<int> steps) {
  int mode = 0;  // by turns: five numbers of ranks and four shapes meet all three
  for (int ranks : {1, 2, 3, 4, 8})
    for (const Shape& shape : {make_shape(150, 211, 64, true, DType::bf16, 2, 1), make_shape(5, 5, 64, true),
                               make_shape(90, 40, 64, true), make_shape(70, 70, 64, false)}) {
      const InBackground in_mode(Async(mode++ % 3), uint64_t(ranks));
      for (int step : steps) expect_right_in_any_order(on_ranks(ranks, shape), step);
    }
}

/// Any number of ranks, in the simulator's three modes. Every number has all shapes, a third of them in each
/// mode; on a GPU modes are one, and the thirds are run one after another.
class Modes : public ChapterTest, public ::testing::WithParamInterface<std::tuple<int, Async>> {};

TEST_P(Modes, AllShapesAreRight) {
  const auto [ranks, async] = GetParam();
  const InBackground mode(async, uint64_t(ranks));
  const std::vector<Shape> shapes = shapes_of_ranks();
  for (std::size_t i = std::size_t(async); i < shapes.size(); i += 3) {
    const Shape divided = on_ranks(ranks, shapes[i]);
    expect_right(divided, inputs_of(divided, InputKind::drifting, 7));
  }
}

inline std::string name_of_mode(const ::testing::TestParamInfo<std::tuple<int, Async>>& info) {
  const char* const names[] = {"eager", "lazy", "random"};
  const auto [ranks, async] = info.param;
  return "on" + std::to_string(ranks) + names[int(async)];
}

INSTANTIATE_TEST_SUITE_P(Ranks, Modes,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8),
                                            ::testing::Values(Async::eager, Async::lazy, Async::random)),
                         name_of_mode);

class TracedRanks : public ChapterTest {};

TEST_F(TracedRanks, BreakNoRuleOfMemory) {
  for (bool causal : {false, true}) {
    const Shape shape = on_ranks(3, make_shape(130, 200, 64, causal, DType::bf16, 2, 1));
    expect_right(shape, inputs_of(shape, InputKind::normal, 3));
  }
}

}  // namespace flashbook::testing
