// Chapter 10's step 7, decoding with a cache over ranks.
#include "chapters/10_many_gpus/host/chapter.h"
#include "tests/chapters/ranks.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kManyGpus;
const Operation operation_under_test = Operation::decode;
const Chapter* const chapter_before = nullptr;

namespace {

constexpr Slug kDecode{kManyGpus, "decode"};

// One query, or a few under a causal mask; fewer key heads than ranks, and fewer keys; groups with more rows
// than a tile.
TEST_F(ChapterTest, FewQueriesOnManyRanks) {
  std::vector<Spec> specs = {
      make_spec(1, 1000, 64, false, DType::bf16, 8, 1), make_spec(4, 700, 128, true, DType::f16, 6, 2),
      make_spec(3, 5, 256, true, DType::bf16, 4, 4), make_spec(9, 300, 64, true, DType::f16, 16, 2)};
  specs[1].batch = 3;
  for (const Spec& spec : specs)
    for (int ranks : {1, 2, 3, 8})
      expect_right(on_ranks(ranks, spec), inputs_of(spec, InputKind::drifting, 5));
}

TEST_F(ChapterTest, EveryLaunchGivesTheSameBits) {
  const Spec spec = on_ranks(3, make_spec(2, 500, 128, true, DType::bf16, 8, 2));
  expect_same_bits(spec, inputs_of(spec, InputKind::normal, 5), kDecode,
                   device::machine() == device::Machine::gpu ? 200 : 2);
}

}  // namespace
}  // namespace flashbook::testing
