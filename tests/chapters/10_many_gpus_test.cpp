#include "chapters/05_flash_attention_3/host/chapter.h"
#include "chapters/10_many_gpus/host/chapter.h"
#include "tests/chapters/forward.h"
#include "tests/chapters/ranks.h"
#include "tests/support/specs.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kManyGpus;
const Operation operation_under_test = Operation::forward;
const Chapter* const chapter_before = kManyGpusBefore;

namespace {

/// Returns the bytes of O and the log-sum-exp from a step.
std::vector<std::byte> bits_of(const Chapter& chapter, const Spec& spec, const Inputs& inputs, int step) {
  const UploadedInputs uploaded(Operation::forward, spec, inputs, device::Place::device);
  const Call call(chapter, spec, uploaded, step);
  call.run();
  return call.download_bytes();
}

// ---- results

// A single rank gives the results of chapter 5's last step bit for bit.
TEST_F(ChapterTest, OneRankIsChapter5) {
  for (const Spec& spec :
       {make_spec(333, 333, 128, true, DType::bf16, 4, 2), make_spec(200, 200, 64, true, DType::f16, 2, 1),
        make_spec(100, 300, 64, false), make_spec(130, 70, 256, true), make_spec(1, 90, 64, true),
        make_spec(2100, 200, 256, true)}) {
    const Inputs inputs = make_inputs(spec, InputKind::drifting, 3);
    const std::vector<std::byte> want = bits_of(kFlashAttention3, spec, inputs, kFlashAttention3.last_step());
    for (int step : steps_under_test())
      EXPECT_TRUE(bits_of(kManyGpus, spec, inputs, step) == want) << describe(spec) << ", step " << step;
  }
}

TEST_F(ChapterTest, AnyOrderOfTokensIsRight) { expect_any_order_is_right({2, 4}); }

// ---- documents

constexpr std::initializer_list<int> kWithDocuments = {1, 4, 5};  ///< steps

class DocumentsOnRanks : public ChapterTest, public ::testing::WithParamInterface<int> {};

// Several numbers of ranks and eight kinds of documents, with the three modes alternating.
TEST_P(DocumentsOnRanks, AreRight) {
  const int ranks = GetParam();
  int mode = ranks;
  for (const Spec& spec : specs_of_documents()) {
    const InBackground in_mode(Async(mode++ % 3), uint64_t(ranks));
    expect_documents_are_right(on_ranks(ranks, spec), kWithDocuments);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, DocumentsOnRanks, ::testing::Values(1, 3, 8));

TEST_F(TracedRanks, ReadNoOtherDocumentsRows) {
  for (bool causal : {false, true}) {
    const Spec spec = on_ranks(3, in_documents(64, causal, {70, 5, 150}, {}, 1, 1));
    expect_documents_are_right(spec, kWithDocuments);
  }
}

// A hop whose keys no query of a rank sees launches nothing: step 4 launches one kernel for each remaining
// hop.
TEST_F(ChapterTest, HopsThatShowNothingLaunchNothing) {
  for (Spec spec : specs_with_empty_hops())
    for (many_gpus::Order order : many_gpus::kOrders) {
      spec.sharding.order = order;
      uint64_t seen = 0;
      for (int rank = 0; rank < spec.sharding.ranks; ++rank)
        for (int hop = 0; hop < spec.sharding.ranks; ++hop)
          seen += sees_some(spec, order, HopsOfRank(spec, order, rank, spec.sharding.ranks), hop);
      EXPECT_EQ(kernels_of(spec, inputs_of(spec, InputKind::normal, 1), 4).value_or(seen), seen)
          << describe(spec);
    }
}

/// Returns the number of 128-key tiles that the busiest rank computes in all hops, under a causal mask.
int64_t tiles_of_the_busiest(many_gpus::Order order, int ranks, int tokens, const std::vector<int>& first) {
  int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<many_gpus::OfRank> keys;
    for (int hop = 0; hop < ranks; ++hop) {
      const int owner = (rank - hop + ranks) % ranks;
      keys.push_back({many_gpus::tokens_of(order, tokens, owner, ranks), owner});
    }
    int64_t tiles = 0;
    for (const auto& hop :
         many_gpus::DocumentLists({first, first}, true, order, ranks, keys.front(), keys).hops)
      for (const many_gpus::DocumentTile& tile : hop) tiles += tile.last / 128 + 1;
    most = std::max(most, tiles);
  }
  return most;
}

// The table of chapter 10's appendix.
TEST(DocumentLists, CostWhatTheAppendixSays) {
  constexpr int kTokens = 65536;
  const auto equal = [&](int length) {
    std::vector<int> first;
    for (int token = 0; token <= kTokens; token += length) first.push_back(token);
    return first;
  };
  std::vector<int> eight;
  for (int d = 0; d <= 8; ++d) eight.push_back(kTokens * d * (d + 1) / 72);
  const struct {
    std::vector<int> first;
    int ranks;
    int64_t tiles[3];
  } rows[] = {{equal(kTokens), 2, {98432, 65664, 65792}}, {equal(kTokens), 8, {30752, 16416, 16640}},
              {eight, 2, {14400, 10875, 10768}},          {eight, 8, {5280, 3443, 3136}},
              {equal(1024), 2, {1152, 1152, 1280}},       {equal(1024), 8, {288, 288, 512}},
              {equal(256), 2, {384, 384, 512}},           {equal(256), 8, {96, 96, 2048}}};
  for (const auto& row : rows)
    for (many_gpus::Order order : many_gpus::kOrders)
      EXPECT_EQ(tiles_of_the_busiest(order, row.ranks, kTokens, row.first), row.tiles[int(order)])
          << row.first.size() - 1 << " documents on " << row.ranks;
}

// e^10000 exceeds float.
TEST_F(ChapterTest, TheMergeDoesNotOverflow) {
  for (DType dtype : chapter_under_test.dtypes)
    for (InputKind kind : {InputKind::large_scores, InputKind::one_hot, InputKind::all_equal}) {
      const Spec spec = on_ranks(3, make_spec(100, 131, 64, true, dtype, 2, 1));
      expect_right(spec, make_inputs(spec, kind, 3));
    }
}

// A log-sum-exp of 2^20 leaves no bits for a fraction, so a merge with it cannot be accurate.
TEST_F(ChapterTest, ScoresThatAMergeCannotHoldAreRefused) {
  Options options;
  options.spec = on_ranks(2, make_spec(40, 40, 64));
  options.spec.scale = 0x1p20f;
  options.steps = {2};
  EXPECT_THROW(run(options, kManyGpus, nullptr), InputError);
}

TEST_F(ChapterTest, EveryLaunchGivesTheSameBits) {
  const Spec spec = on_ranks(3, make_spec(257, 257, 64, true, DType::bf16, 2, 2));
  for (int step : steps_under_test())
    expect_same_bits(spec, make_inputs(spec, InputKind::normal, 5), step,
                     device::machine() == device::Machine::gpu ? 200 : 2);
}

}  // namespace
}  // namespace flashbook::testing
