// Chapter 8's parts: any number of them, merged by a second kernel or by a tree of last arrivers, with fewer
// and with more blocks than multiprocessors.
#include <gtest/gtest.h>

#include <algorithm>

#include "chapters/08_decoding/host/rules_launch.cuh"
#include "common/app/call.h"
#include "common/attention/check.h"
#include "common/attention/inputs.h"
#include "tests/require_gpu.h"

namespace flashbook::testing {
namespace {

using namespace decoding;

class Parts : public MachineTest {};
using TracedParts = Parts;

constexpr int kHeads = 4, kHeadDim = 128;

/// Queries of four heads that share their keys.
Shape shape_with(std::vector<int> lengths, int seqlen_q = 1) {
  return {.batch = int(lengths.size()),
          .heads = kHeads,
          .kv_heads = 1,
          .seqlen_q = seqlen_q,
          .seqlen_k = std::max(1, *std::ranges::max_element(lengths)),
          .head_dim = kHeadDim,
          .visibility = {.lengths = lengths},
          .dtype = DType::bf16,
          .scale = default_scale(kHeadDim)};
}

/// A call with its own memory, so that the test can inspect the workspace.
struct OwnCall {
  UploadedInputs inputs;
  device::Buffer o, lse, workspace;
  Tensors tensors;

  OwnCall(const Shape& shape, const Inputs& values, int64_t workspace_bytes)
      : inputs(Operation::decode, shape, values, device::Place::device),
        o(device::Place::device, shape.q_elements() * 2),
        lse(device::Place::device, shape.q_rows() * 4),
        workspace(device::Place::device, workspace_bytes),
        tensors(inputs.tensors()) {
    tensors.o = o.data();
    tensors.lse = static_cast<float*>(lse.data());
    tensors.workspace = workspace.data();
  }

  static std::vector<std::byte> bytes_of(const device::Buffer& buffer) {
    std::vector<std::byte> bytes(buffer.bytes());
    buffer.download(bytes);
    return bytes;
  }
  Outputs outputs() const { return {decode(DType::bf16, bytes_of(o)), decode(DType::f32, bytes_of(lse))}; }
};

TEST_F(Parts, OfAnyNumberAreMergedByASecondKernel) {
  for (const Shape& shape : {shape_with({1500}), shape_with({0, 1, 700})}) {
    const Inputs inputs = make_inputs(shape, InputKind::drifting, 2);
    const Reference reference = make_reference(shape, inputs, all_rows(shape));
    for (int parts : {1, 2, 3, 7, 12, 33, 128}) {
      SCOPED_TRACE(std::to_string(parts) + " parts");
      OwnCall run(shape, inputs, partial_bytes(shape, parts));  // poisoned
      run_pack_gqa<__nv_bfloat16, kHeadDim>(shape, run.tensors, nullptr, kHeads, parts);
      device::synchronize();
      EXPECT_TRUE(check(shape, reference, run.outputs()).ok());
    }
  }
}

/// Launches the ring on `blocks` blocks, twice in the same workspace.
template <typename Traits = RingKernelTraits<RingSizes{.head_dim = kHeadDim}>>
void expect_ring_right(const Shape& shape, const RingLaunch& launch) {
  SCOPED_TRACE(describe(shape) + ", " + std::to_string(launch.blocks) + " blocks");
  const Inputs inputs = make_inputs(shape, InputKind::drifting, 2);
  const Reference reference = make_reference(shape, inputs, all_rows(shape));
  const int64_t bytes = std::max<int64_t>(kArrivalBytes, ring_workspace_bytes(shape, launch));
  OwnCall run(shape, inputs, bytes);
  std::vector<std::byte> fresh(bytes, std::byte(kPoison));
  std::fill_n(fresh.begin(), kArrivalBytes, std::byte(0));
  run.workspace.upload(fresh);
  std::vector<std::byte> first;
  for (int i = 0; i < 2; ++i) {
    run.o.poison();
    run_ring<__nv_bfloat16, Traits>(shape, run.tensors, nullptr, launch);
    device::synchronize();
    EXPECT_TRUE(check(shape, reference, run.outputs()).ok()) << "launch " << i + 1;
    const std::vector<std::byte> after = OwnCall::bytes_of(run.workspace), o = OwnCall::bytes_of(run.o);
    for (int64_t byte = 0; byte < kArrivalBytes; ++byte)
      ASSERT_EQ(after[byte], std::byte(0)) << "a counter is left at byte " << byte;
    if (i == 1) {
      EXPECT_TRUE(o == first) << "the second launch gives other bits";
    }
    first = o;
  }
}

RingLaunch equal_parts(const Shape& shape, int parts) {
  RingLaunch launch = ring_launch(shape, false);
  launch.plan.parts = parts;
  launch.blocks = shape.batch * parts;
  return launch;
}

RingLaunch equal_work(const Shape& shape, int blocks) {
  RingLaunch launch = ring_launch(shape, true);
  launch.blocks = blocks;
  return launch;
}

// One part, fewer than a merge takes at once, exactly as many, one more, and more than there are tiles.
TEST_F(Parts, OfAnyNumberAreMergedByTheLastToArrive) {
  for (int parts : {1, 2, 3, 16, 17, 40, 128}) {
    expect_ring_right(shape_with({1500}), equal_parts(shape_with({1500}), parts));
    expect_ring_right(shape_with({0, 1, 700}, 3), equal_parts(shape_with({0, 1, 700}, 3), parts));
  }
}

// A caller may have the lengths only in device memory, and not in the shape.
TEST_F(Parts, AreEqualOnlyOfSequencesThatAreKnownToBe) {
  Shape shape = shape_with(std::vector<int>(device::multiprocessors(), 8192));
  EXPECT_TRUE(ring_launch(shape, true).plan.equal_work);
  EXPECT_GT(ring_workspace_bytes(shape, ring_launch(shape, true)), 0);
  EXPECT_FALSE(ring_launch(shape, true, true).plan.equal_work);
  shape.visibility.lengths.clear();
  EXPECT_TRUE(ring_launch(shape, true).plan.equal_work);
}

// More items than multiprocessors, all of the same length, are not split: short ones are distributed evenly
// over persistent blocks, long ones get a block each, unless the last wave would have few blocks.
TEST_F(Parts, AreWholeWhereThereAreManyItemsOfOneLength) {
  const int processors = device::multiprocessors();
  const auto with = [](int batch, int keys) {
    Shape shape = shape_with(std::vector<int>(batch, keys));
    shape.visibility.lengths.clear();
    return shape;
  };
  for (int batch : {processors + processors * 6 / 10 + 1, 2 * processors, 3 * processors - 1}) {
    for (int keys : {1, 2048, kShortItem, kShortItem + 1, 8192}) {
      const RingLaunch launch = ring_launch(with(batch, keys), true, true);
      EXPECT_FALSE(launch.plan.equal_work);
      EXPECT_EQ(int(launch.plan.parts), 1);
      const int rounds = ceil_div(batch, processors);
      EXPECT_EQ(launch.blocks, keys <= kShortItem ? ceil_div(batch, rounds) : batch);
      EXPECT_EQ(ring_launch(with(batch, keys), false, true).blocks, batch)
          << "steps 4 and 5: a block an item";
    }
  }
  EXPECT_TRUE(ring_launch(with(processors + 1, 2048), true, true).plan.equal_work)
      << "one block would have two";
  EXPECT_TRUE(ring_launch(with(2 * processors, 2048), true, false).plan.equal_work) << "lengths may differ";
}

// The merging kernel's grid has at most 65,535 rows of blocks, one per item.
TEST_F(Parts, AreWholeWhereThereAreMoreItemsThanAGridHasRows) {
  for (const auto& [batch, cut] : {std::pair(65535, true), {65536, false}, {70000, false}}) {
    const Shape shape = shape_with(std::vector<int>(batch, 300));
    const RingLaunch launch = ring_launch(shape, true);
    EXPECT_EQ(launch.plan.equal_work, cut) << batch;
    EXPECT_EQ(ring_workspace_bytes(shape, launch) > 0, cut) << batch;
    EXPECT_EQ(launch.blocks, cut ? device::multiprocessors() : batch) << batch;
  }
}

// Two blocks per multiprocessor, where at least nine of ten have short items, and equally many.
TEST_F(Parts, AreDealtToTwiceAsManyBlocksThatAreHalfAsLarge) {
  const int processors = device::multiprocessors();
  const auto launch_of = [](int batch, int keys, int queries = 1, bool even = true, bool halves = true) {
    Shape shape = shape_with(std::vector<int>(batch, keys), queries);
    shape.visibility.lengths.clear();
    return ring_launch(shape, true, even, halves);
  };
  for (int rounds : {1, 2, 5}) {
    const int most = 2 * processors * rounds, least = ceil_div(9 * 2 * processors, 10) * rounds;
    for (int batch : {least, std::max(least, most - 1), most}) {
      const RingLaunch launch = launch_of(batch, 2048);
      EXPECT_TRUE(launch.in_halves) << batch;
      EXPECT_FALSE(launch.plan.equal_work);
      EXPECT_EQ(launch.blocks, ceil_div(batch, rounds));
    }
    EXPECT_FALSE(launch_of(least - rounds, 2048).in_halves) << "few blocks would have something";
  }
  const int batch = 4 * processors;
  EXPECT_TRUE(launch_of(batch, kShortItem).in_halves);
  EXPECT_FALSE(launch_of(batch, kShortItem + 1).in_halves) << "long items";
  EXPECT_FALSE(launch_of(batch, 2048, 9).in_halves) << "more than 16 rows";
  EXPECT_FALSE(launch_of(batch, 2048, 1, false).in_halves) << "lengths may differ";
  EXPECT_FALSE(launch_of(batch, 2048, 1, true, false).in_halves) << "no such kernel";
  EXPECT_FALSE(launch_of(processors, 2048).in_halves) << "a multiprocessor has one item";
}

// Blocks process whole items one after another.
TEST_F(Parts, OfWholeItemsAreThoseOfAnyNumberOfBlocks) {
  for (int blocks : {1, 2, 3, 7, 8}) {
    RingLaunch launch = equal_parts(shape_with({300, 1, 0, 129, 1000, 128, 64, 700}), 1);
    launch.blocks = blocks;
    expect_ring_right(shape_with({300, 1, 0, 129, 1000, 128, 64, 700}), launch);
    expect_ring_right<RingKernelTraits<RingSizes{.head_dim = kHeadDim, .blocks = 2}>>(
        shape_with({300, 1, 0, 129, 1000, 63, 64, 700}), launch);
  }
}

// Blocks begin and end anywhere in a sequence; some have a dozen sequences, some none.
TEST_F(Parts, OfEqualWorkAreThoseOfAnyNumberOfBlocks) {
  const std::vector<int> many = {300, 1, 0, 129, 128, 5000, 0, 0, 64, 1, 2, 3, 257, 0};
  for (int blocks : {1, 2, 5, 17, 50, 61, 132})
    for (const Shape& shape : {shape_with({7000}), shape_with(many, 2)})
      expect_ring_right(shape, equal_work(shape, blocks));
}

// Each member of a team has the same keys of another item. With more teams than units some have none.
TEST_F(Parts, OfTeamsAreThoseOfAnyNumberOfTeams) {
  Shape shape = shape_with({300, 1, 0, 129, 1000, 2600});
  shape.heads *= 3, shape.kv_heads = 3;
  for (int teams : {1, 2, 5, 40}) {
    RingLaunch launch = equal_work(shape, 3 * teams);
    launch.plan.team = 3;
    expect_ring_right(shape, launch);
  }
}

TEST(Teams, LeaveAtMostATenthOfTheMultiprocessorsIdle) {
  for (int processors : {1, 7, 108, 132})
    for (int items : {1, 2, 3, 8, 16, 40, 67, 96, 128, 131, 132, 133, 256, 1000}) {
      const int team = team_of(items, processors), used = processors / team * team;
      EXPECT_EQ(items % team, 0) << items;
      EXPECT_GE(10 * used, 9 * processors) << items;
    }
  EXPECT_EQ(team_of(8, 132), 8);
  EXPECT_EQ(team_of(96, 132), 32) << "teams of 96 or 48 would leave 36 of 132 without a block";
}

constexpr int kMaxSegments = 64;

/// The segments of each block, a row of five numbers per segment: batch entry, first key, the one after the
/// last, part, parts. One warp per block.
template <int kKeys, typename PlanType>
__global__ void ask(PlanType plan, decoding::Problem problem, int blocks,
                    int* found) {  // [blocks, kMaxSegments, 5]
  Segments<kKeys, PlanType> segments(plan, problem, blocks);
  segments.begin(int(blockIdx.x));
  int* to = found + int64_t(blockIdx.x) * kMaxSegments * 5;
  for (decoding::Segment segment; segments.next(segment); to += 5) {
    const int start = plan.first_key_of(problem, segment.pack / problem.packs, segment.length);
    const int first = start + segment.begin * kKeys;  // some equal parts have no tile
    const int end = segment.begin == segment.end ? first : min(start + segment.end * kKeys, segment.length);
    const int numbers[] = {segment.pack, first, end, segment.part, segment.parts};
    if (threadIdx.x == 0)
      for (int i = 0; i < 5; ++i) to[i] = numbers[i];
  }
}

// Nothing before a window is read except the rest of its first page; each later key is read once; and blocks
// with equal work differ by at most one tile of the window's keys.
TEST_F(Parts, OfAWindowHaveItsKeysAndNoOthers) {
  constexpr int kKeys = RingKernelTraits<RingSizes{.head_dim = kHeadDim}>::kKeys;
  const std::vector<int> lengths = {0, 1, 100, 1023, 1024, 1025, 1500, 30000, 100000};
  for (int left : {0, 127, 1000, 1023, 4096})
    for (int rows : {0, 16, 512})
      for (bool work : {false, true})
        for (int queries : {1, 3}) {
          Shape shape = shape_with(lengths, queries);
          shape.visibility.window = {.left = left, .right = 0};
          if (rows > 0) shape.paging = {.rows = rows, .pages = 1};  // the table is not read
          const RingLaunch launch = ring_launch(shape, work);
          device::Buffer on_device(device::Place::device, lengths.size() * sizeof(int));
          on_device.upload(std::as_bytes(std::span(lengths)));
          Tensors tensors;
          tensors.tables[int(TableId::lengths)] = on_device.data();
          const Rules<false> rules = rules_of<false>(shape, tensors, launch);
          std::vector<int> said(std::size_t(launch.blocks) * kMaxSegments * 5, -1);
          device::Buffer found(device::Place::device, said.size() * sizeof(int));
          found.upload(std::as_bytes(std::span(said)));
          device::launch(ask<kKeys, Rules<false>>, dim3(unsigned(launch.blocks)), dim3(32), 0,
                         device::Stream{}, rules, problem_of(shape, tensors, kHeads), launch.blocks,
                         static_cast<int*>(found.data()));
          found.download(std::as_writable_bytes(std::span(said)));
          std::vector<int64_t> read(lengths.size());
          std::vector<int> first(lengths.size(), 1 << 30), tiles(launch.blocks);
          for (std::size_t i = 0; i < said.size() && launch.blocks > 0; i += 5) {
            if (said[i] < 0) continue;
            read[said[i]] += said[i + 2] - said[i + 1];
            if (said[i + 1] < said[i + 2]) first[said[i]] = std::min(first[said[i]], said[i + 1]);
            tiles[i / 5 / kMaxSegments] +=
                std::max(1, (said[i + 2] - said[i + 1] + kKeys - 1) / kKeys);  // an empty item counts as one
          }
          const int piece = rows == 0 ? 1 : std::min(rows, kKeys);
          for (std::size_t batch = 0; batch < lengths.size(); ++batch) {
            const int begin = std::max(lengths[batch] - queries - left, 0) / piece * piece;
            EXPECT_EQ(read[batch], lengths[batch] - begin) << lengths[batch] << ", window " << left;
            EXPECT_EQ(first[batch], lengths[batch] > 0 ? begin : 1 << 30);
          }
          if (!work) continue;
          std::erase(tiles, 0);  // blocks without work
          const auto [least, most] = std::ranges::minmax(tiles);
          EXPECT_TRUE(most - least <= 1) << least << " to " << most;
        }
}

TEST_F(TracedParts, AreHandedFromBlockToBlock) {
  expect_ring_right(shape_with({1100}), equal_parts(shape_with({1100}), 3));
  RingLaunch whole = equal_parts(shape_with({300, 0, 129}), 1);
  whole.blocks = 2;
  expect_ring_right(shape_with({300, 0, 129}), whole);
  expect_ring_right<RingKernelTraits<RingSizes{.head_dim = kHeadDim, .blocks = 2}>>(shape_with({300, 0, 129}),
                                                                                    whole);
  expect_ring_right(shape_with({2600, 0, 300}, 2), equal_work(shape_with({2600, 0, 300}, 2), 20));
}

}  // namespace
}  // namespace flashbook::testing
