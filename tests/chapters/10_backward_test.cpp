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

constexpr int kGradient = 6, kHopper = 5;  ///< the steps of chapters 10 (and 9) and 7

// A single rank gives chapter 7's step 5's results: dK and dV bit for bit, dQ up to the order of its sums.
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

// Keys that no query of a rank, or of any rank, sees get zero gradients.
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

// Sums are sent in float32: the error does not grow with the number of ranks.
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

// ---- documents

class DocumentsOnRanks : public ChapterTest, public ::testing::WithParamInterface<int> {};

// Five numbers of ranks and ten kinds of documents, with the three modes alternating. Eight ranks, which take
// longest, use head_dim 64 only.
TEST_P(DocumentsOnRanks, HaveRightGradients) {
  const int ranks = GetParam();
  int mode = ranks;
  std::vector<Shape> shapes = shapes_of_documents();
  shapes.push_back(in_documents(64, true, {300, 3, 3, 3, 3, 3}));  // most ranks see one document, or a few
  shapes.push_back(in_documents(128, false, {40, 140, 20}, {130, 10, 90}, 2, 2));
  for (const Shape& shape : shapes) {
    if (ranks == 8 && shape.head_dim > 64) continue;
    const InBackground in_mode(Async(mode++ % 3), uint64_t(ranks));
    expect_documents_are_right(on_ranks(ranks, shape), {kGradient});
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, DocumentsOnRanks, ::testing::Values(1, 2, 3, 4, 8));

TEST_F(TracedRanks, ReadNoOtherDocumentsRows) {
  for (bool causal : {false, true})
    expect_documents_are_right(on_ranks(3, in_documents(64, causal, {70, 5, 150}, {}, 1, 1)), {kGradient});
}

TEST_F(ChapterTest, DocumentsInAnyOrderOfTheWarps) {
  const RandomWarpOrder order(5);
  for (int head_dim : {64, 128, 256})
    expect_documents_are_right(on_ranks(2, in_documents(head_dim, true, {70, 5, 150})), {kGradient});
}

// A single rank gives chapter 7's bits for one document, and chapter 9's for documents of whole tiles, since
// chapter 9 begins a tile with each document.
TEST_F(ChapterTest, OneRankWithDocumentsIsChapter7And9) {
  const auto expect_same_keys = [](const Chapter& other, const Shape& of_other, const Shape& shape) {
    const Inputs inputs = inputs_of(shape, InputKind::drifting, 3);
    const Outputs want = run_once(other, of_other, inputs, kGradient),
                  got = run_once(kManyGpus, shape, inputs, kGradient);
    EXPECT_TRUE(got.dk == want.dk) << describe(shape);
    EXPECT_TRUE(got.dv == want.dv) << describe(shape);
  };
  for (int head_dim : {64, 128, 256}) {
    for (bool causal : {true, false}) {
      const Shape one = in_documents(head_dim, causal, {333});
      Shape plain = one;
      plain.visibility.documents = {};
      expect_same_keys(kManyGpus, plain, one);
    }
    const Shape tiles = in_documents(head_dim, true, {128, 384, 256});
    expect_same_keys(kMasks, tiles, tiles);
  }
}

// A key's queries are those that see it by the definition of the mask; a tile's range from the first to the
// last of its keys' queries. Every key is in exactly one tile, and tiles with the most queries come last.
TEST(KeyLists, HaveEveryPair) {
  using many_gpus::KeyTile, many_gpus::QueriesOfKey;
  for (const Shape& shape : shapes_of_documents())
    for (many_gpus::Order order : many_gpus::kOrders)
      for (int ranks : {1, 2, 3, 8})
        for (int rank = 0; rank < ranks; ++rank) {
          const Shape divided = on_ranks(ranks, shape);
          const HopsOfRank of_rank(shape, order, rank, ranks);
          const many_gpus::KeyLists lists(shape.visibility.documents, shape.visibility.window.right == 0,
                                          order, ranks, of_rank.queries, of_rank.keys);
          for (int hop = 0; hop < ranks; ++hop) {
            const many_gpus::OfRank& held = of_rank.keys[std::size_t(hop)];
            const auto& [keys, tiles, is_seen] = lists.hops[std::size_t(hop)];
            ASSERT_EQ(keys.size(), tiles.size() * 128);
            for (int key = 0; key < int(keys.size()); ++key) {
              const QueriesOfKey seen = keys[std::size_t(key)];
              for (int token = 0; token < of_rank.queries.tokens.total(); ++token) {
                const bool sees_it = key < held.tokens.total() &&
                                     sees(shape, 0, 0, place_of(of_rank.queries, token, order, ranks),
                                          place_of(held, key, order, ranks));
                ASSERT_EQ(token >= seen.begin && token < seen.end, sees_it)
                    << describe(divided) << ", query " << token << ", key " << key << " of hop " << hop;
              }
            }
            std::vector<int> tiles_of(tiles.size());
            int most = 0;
            for (const KeyTile& tile : tiles) {
              ++tiles_of[std::size_t(tile.key / 128)];
              int begin = 1 << 30, end = 0;
              for (int key = tile.key; key < tile.key + 128; ++key)
                if (const QueriesOfKey seen = keys[std::size_t(key)]; seen.begin < seen.end)
                  begin = std::min(begin, seen.begin), end = std::max(end, seen.end);
              ASSERT_EQ(tile.queries.end, end);
              ASSERT_EQ(tile.queries.begin, end == 0 ? 0 : begin);
              ASSERT_GE(tile.queries.end - tile.queries.begin, most);
              most = tile.queries.end - tile.queries.begin;
            }
            ASSERT_EQ(tiles_of, std::vector<int>(tiles.size(), 1));
            ASSERT_EQ(is_seen, sees_some(divided, order, of_rank, hop));
          }
        }
}

// If no query of a rank sees a hop's keys, the hop launches no gradient, and from hop 2 on nothing at all. In
// addition, each rank prepares, and rounds keys and queries. Each gradient's launch clears the counter first,
// and from hop 2 on a sum is added. Hops 0 and 1 clear a part if they do not compute it.
TEST_F(ChapterTest, HopsThatShowNothingLaunchNothing) {
  for (Shape shape : shapes_with_empty_hops())
    for (many_gpus::Order order : many_gpus::kOrders) {
      shape.order = order;
      uint64_t kernels = 0;
      for (int rank = 0; rank < shape.ranks; ++rank) {
        kernels += 3;
        for (int hop = 0; hop < shape.ranks; ++hop)
          if (sees_some(shape, order, HopsOfRank(shape, order, rank, shape.ranks), hop))
            kernels += hop > 1 ? 3 : 2;
          else
            kernels += hop > 1 ? 0 : 1;
      }
      EXPECT_EQ(kernels_of(shape, inputs_of(shape, InputKind::normal, 1), kGradient).value_or(kernels),
                kernels)
          << describe(shape);
    }
}

TEST(BackwardRing, IsAStepOfTheChapter) {
  EXPECT_EQ(kManyGpus.steps_of(Operation::backward), std::vector<int>{kGradient});
}

}  // namespace
}  // namespace flashbook::testing
