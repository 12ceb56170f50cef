// Chapter 10's step 6, the gradient in a ring.
#include "chapters/07_backward/host/chapter.h"
#include "chapters/09_masks/host/chapter.h"
#include "chapters/10_many_gpus/host/chapter.h"
#include "tests/chapters/ranks.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kManyGpus;
const Operation operation_under_test = Operation::backward;
const Chapter* const chapter_before = nullptr;

namespace {

constexpr Slug kGradient{kManyGpus, "backward"}, kHopper{kBackward, "persistent"};

// A single rank gives chapter 7's step 5's results: dK and dV bit for bit, dQ up to the order of its sums.
// For grouped heads under a causal mask chapter 7 adds dK and dV in any order, too.
TEST_F(ChapterTest, OneRankIsChapter7) {
  for (const Spec& spec :
       {make_spec(333, 333, 128, true, DType::bf16, 2, 2), make_spec(200, 200, 64, false, DType::f16, 2, 1),
        make_spec(100, 300, 64, false), make_spec(130, 70, 256, true)}) {
    const Inputs inputs = inputs_of(spec, InputKind::drifting, 3);
    const Outputs want = run_once(kBackward, spec, inputs, kHopper),
                  got = run_once(kManyGpus, spec, inputs, kGradient);
    EXPECT_EQ(got.dk, want.dk) << describe(spec);
    EXPECT_EQ(got.dv, want.dv) << describe(spec);
  }
}

TEST_F(ChapterTest, AnyOrderOfTokensIsRight) { expect_any_order_is_right({kGradient}); }

// ---- documents

class DocumentsOnRanks : public ChapterTest, public ::testing::WithParamInterface<int> {};

// Several numbers of ranks and ten kinds of documents, with the three modes alternating. Eight ranks, which
// take longest, use head_dim 64 only.
TEST_P(DocumentsOnRanks, HaveRightGradients) {
  const int ranks = GetParam();
  int mode = ranks;
  std::vector<Spec> specs = specs_of_documents();
  specs.push_back(in_documents(64, true, {300, 3, 3, 3, 3, 3}));  // most ranks see one document, or a few
  specs.push_back(in_documents(128, false, {40, 140, 20}, {130, 10, 90}, 2, 2));
  for (const Spec& spec : specs) {
    if (ranks == 8 && spec.head_dim > 64) continue;
    const InBackground in_mode(Async(mode++ % 3), uint64_t(ranks));
    expect_documents_are_right(on_ranks(ranks, spec), {kGradient});
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, DocumentsOnRanks, ::testing::Values(1, 3, 8));

TEST_F(TracedRanks, ReadNoOtherDocumentsRows) {
  for (bool causal : {false, true})
    expect_documents_are_right(on_ranks(3, in_documents(64, causal, {70, 5, 150}, {}, 1, 1)), {kGradient});
}

TEST_F(ChapterTest, DocumentsInAnyOrderOfTheWarps) {
  const RandomWarpOrder order(5);
  for (int head_dim : {64, 128, 256})
    expect_documents_are_right(on_ranks(2, in_documents(head_dim, true, {70, 5, 150})), {kGradient});
}

// If no query of a rank sees a hop's keys, the hop launches no gradient, and from hop 2 on nothing at all. In
// addition, each rank launches three kernels, which prepare, round keys and round queries. A gradient is
// preceded by a kernel that clears the counter and, from hop 2 on, followed by one that adds the sum. Hops 0
// and 1 clear a part if they do not compute it.
TEST_F(ChapterTest, HopsThatShowNothingLaunchNothing) {
  for (Spec spec : specs_with_empty_hops())
    for (many_gpus::Order order : many_gpus::kOrders) {
      spec.sharding.order = order;
      uint64_t kernels = 0;
      for (int rank = 0; rank < spec.sharding.ranks; ++rank) {
        kernels += 3;
        for (int hop = 0; hop < spec.sharding.ranks; ++hop)
          if (sees_some(spec, order, HopsOfRank(spec, order, rank, spec.sharding.ranks), hop))
            kernels += hop > 1 ? 3 : 2;
          else
            kernels += hop > 1 ? 0 : 1;
      }
      EXPECT_EQ(kernels_of(spec, inputs_of(spec, InputKind::normal, 1), kGradient).value_or(kernels), kernels)
          << describe(spec);
    }
}

}  // namespace
}  // namespace flashbook::testing
