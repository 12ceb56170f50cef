// common/hopper against chapter 5, which spells the same out: both go through the same stages and phases,
// give out the same tiles in the same order, take turns alike, describe tiles to wgmma alike, hide the same
// keys and add up rows to the same bits.
#include <gtest/gtest.h>

#include <vector>

#include "chapters/05_flash_attention_3/host/launch.cuh"
#include "common/hopper/launch.h"
#include "common/hopper/pingpong.h"
#include "common/hopper/rows.h"
#include "common/hopper/tiles.h"
#include "tests/require_gpu.h"
#include "tests/support/machine.h"
#include "tests/values.h"

namespace flashbook::testing {
namespace {

constexpr int kKeys = 32;  // of a tile of scores

struct Chapter5 {
  template <int kStages>
  using State = flash3::PipelineState<kStages>;
  using Order = flash3::TileOrder;
  using Problem = flash3::Problem;
  using Rows = flash3::Rows;
  using Tile = flash3::Tile<__nv_bfloat16, kKeys, 128>;
  static __device__ uint64_t along(const Tile& tile) { return flash3::rows_descriptor(tile); }
  static __device__ uint64_t across(const Tile& tile) { return flash3::values_descriptor(tile); }
  static Order order(const Shape& shape, int rows, bool longest_first) {
    return flash3::tile_order(shape, rows, longest_first);
  }
  static Problem problem(const Shape& shape) { return flash3::problem_of(shape); }
  template <int kConsumers>
  static __device__ void take(int consumer) {
    flash3::take_turn<kConsumers>(consumer);
  }
  template <int kConsumers>
  static __device__ void pass(int consumer) {
    flash3::pass_turn<kConsumers>(consumer);
  }
  template <int kConsumers>
  static __device__ void open(int consumer) {
    flash3::open_turns<kConsumers>(consumer);
  }
  static __device__ float max(float x) { return flash3::quad_max(x); }
  static __device__ float sum(float x) { return flash3::quad_sum(x); }
  static __device__ void scale(float (&scores)[kKeys / 2], const float (&factor)[2]) {
    flash3::rescale_rows(scores, factor);
  }
};

struct Common {
  template <int kStages>
  using State = hopper::PipelineState<kStages>;
  using Order = hopper::TileOrder;
  using Problem = hopper::Problem;
  using Rows = hopper::Rows;
  using Tile = hopper::Tile<__nv_bfloat16, kKeys, 128>;
  static __device__ uint64_t along(const Tile& tile) { return hopper::along_rows(tile); }
  static __device__ uint64_t across(const Tile& tile) { return hopper::across_rows(tile); }
  static Order order(const Shape& shape, int rows, bool longest_first) {
    return hopper::tile_order(shape, rows, longest_first);
  }
  static Problem problem(const Shape& shape) { return hopper::problem_of(shape); }
  template <int kConsumers>
  static __device__ void take(int consumer) {
    hopper::take_turn<kConsumers>(consumer);
  }
  template <int kConsumers>
  static __device__ void pass(int consumer) {
    hopper::pass_turn<kConsumers>(consumer);
  }
  template <int kConsumers>
  static __device__ void open(int consumer) {
    hopper::open_turns<kConsumers>(consumer);
  }
  static __device__ float max(float x) { return hopper::quad_max(x); }
  static __device__ float sum(float x) { return hopper::quad_sum(x); }
  static __device__ void scale(float (&scores)[kKeys / 2], const float (&factor)[2]) {
    hopper::rescale_rows(scores, factor);
  }
};

class CommonHopper : public MachineTest {};

// ---- the pipeline

constexpr int kSteps = 30;

template <typename House, int kStages>
__global__ void walk(int* out) {  // [kSteps, 2]
  typename House::template State<kStages> state;
  for (int i = 0; i < kSteps; ++i, state.advance()) out[2 * i] = state.stage, out[2 * i + 1] = state.phase;
}

template <typename House, int kStages>
std::vector<int> walked() {
  Values<int> out(2 * kSteps);
  device::launch(walk<House, kStages>, 1, 1, 0, nullptr, out.data());
  return out.get();
}

template <int kStages>
void expect_same_walk() {
  const std::vector<int> states = walked<Common, kStages>();
  EXPECT_EQ(states, (walked<Chapter5, kStages>()));
  for (int i = 0; i < kSteps; ++i) {
    EXPECT_EQ(states[2 * i], i % kStages);
    EXPECT_EQ(states[2 * i + 1], i / kStages % 2);
  }
}

TEST_F(CommonHopper, PipelinesGoThroughTheSameStagesAndPhases) {
  expect_same_walk<1>();
  expect_same_walk<2>();
  expect_same_walk<3>();
  expect_same_walk<8>();
}

// ---- the tile scheduler

template <typename Order>
__global__ void list_tiles(Order order, int count, int* out) {  // [count, 3]
  for (int i = 0; i < count; ++i) {
    const auto work = tile_at(order, i);
    out[3 * i] = work.head.batch, out[3 * i + 1] = work.head.head, out[3 * i + 2] = work.query_tile;
  }
}

template <typename House>
std::vector<int> tiles_of(const Shape& shape, int rows, bool longest_first) {
  const auto order = House::order(shape, rows, longest_first);
  const int count = order.tiles + 2;  // and two that there are not
  Values<int> out(3 * count);
  device::launch(list_tiles<typename House::Order>, 1, 1, 0, nullptr, order, count, out.data());
  return out.get();
}

TEST_F(CommonHopper, TilesComeInTheSameOrder) {
  for (int batch : {1, 3})
    for (int kv_heads : {1, 2, 5})
      for (int group : {1, 3})
        for (int seqlen_q : {1, 64, 1000})
          for (int seqlen_k : {70, 40000, 1 << 20})  // all heads a section, or some, or one
            for (bool longest_first : {false, true}) {
              const Shape shape{.batch = batch,
                                .heads = kv_heads * group,
                                .kv_heads = kv_heads,
                                .seqlen_q = seqlen_q,
                                .seqlen_k = seqlen_k,
                                .head_dim = 128};
              const std::vector<int> tiles = tiles_of<Common>(shape, 192, longest_first);
              ASSERT_EQ(tiles, tiles_of<Chapter5>(shape, 192, longest_first)) << describe(shape);
              // Each once.
              std::vector<int> seen(tiles.size() / 3 - 2);
              const int of_head = (seqlen_q + 191) / 192;
              for (std::size_t i = 0; i < seen.size(); ++i)
                ++seen.at((tiles[3 * i] * shape.heads + tiles[3 * i + 1]) * of_head + tiles[3 * i + 2]);
              EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
              EXPECT_LT(tiles.back(), 0);
            }
}

// ---- pingpong

constexpr int kTurns = 6;

template <typename House, int kConsumers>
__global__ void play(int* out, int* count) {  // [kTurns * kConsumers]
  const int consumer = threadIdx.x / hopper::kWarpgroup;
  House::template open<kConsumers>(consumer);
  for (int i = 0; i < kTurns; ++i) {
    House::template take<kConsumers>(consumer);
    if (threadIdx.x % hopper::kWarpgroup == 0) out[(*count)++] = consumer;
    House::template pass<kConsumers>(consumer);
  }
  House::template take<kConsumers>(consumer);  // what was passed last is taken, or a barrier keeps arrivals
  if (consumer + 1 < kConsumers) House::template pass<kConsumers>(consumer);
}

template <typename House, int kConsumers>
std::vector<int> played() {
  Values<int> out(kTurns * kConsumers), count(std::vector<int>{0});
  device::launch(play<House, kConsumers>, 1, kConsumers * hopper::kWarpgroup, 0, nullptr, out.data(),
                 count.data());
  return out.get();
}

TEST_F(CommonHopper, ConsumersTakeTheSameTurns) {
  for (int seed = 1; seed <= 5; ++seed) {
    const RandomWarpOrder order(seed);
    EXPECT_EQ((played<Common, 2>()), (played<Chapter5, 2>()));
    const std::vector<int> three = played<Common, 3>();
    EXPECT_EQ(three, (played<Chapter5, 3>()));
    for (std::size_t i = 0; i < three.size(); ++i) EXPECT_EQ(three[i], int(i % 3));
  }
}

// ---- tiles

template <typename House>
__global__ void describe_tile(uint64_t* out) {  // [2]
  const auto& tile = *dynamic_shared<typename House::Tile>();
  out[0] = House::along(tile), out[1] = House::across(tile);
}

template <typename House>
std::vector<uint64_t> descriptors() {
  Values<uint64_t> out(2);
  device::launch(describe_tile<House>, 1, 1, sizeof(typename House::Tile), nullptr, out.data());
  return out.get();
}

TEST_F(CommonHopper, TilesAreDescribedAlike) {
  EXPECT_EQ(sizeof(Common::Tile), sizeof(Chapter5::Tile));
  EXPECT_EQ(descriptors<Common>(), descriptors<Chapter5>());
}

// ---- masks and rows

template <typename House>
__global__ void mask_and_add(typename House::Problem problem, int first_query, int first_key, float* out) {
  float scores[kKeys / 2];
  for (int i = 0; i < kKeys / 2; ++i) scores[i] = float(int(threadIdx.x * 37 + i * 11) % 64) / 8;
  const int query = first_query + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const float needed = needs_mask(problem, first_query, first_key, kKeys);
  mask(scores, problem, query, first_key);
  typename House::Rows rows = House::Rows::none();
  for (int i = 0; i < kKeys / 2; ++i) {
    float& max = rows.max[i / 2 % 2];
    max = fmaxf(max, scores[i]);
    if (scores[i] > -INFINITY) rows.sum[i / 2 % 2] += scores[i];
  }
  const float factor[2] = {2, 3};
  House::scale(scores, factor);
  float* own = out + threadIdx.x * (kKeys / 2 + 6);
  for (int i = 0; i < kKeys / 2; ++i) own[i] = scores[i];
  own += kKeys / 2;
  own[0] = House::max(rows.max[0]), own[1] = House::max(rows.max[1]);
  own[2] = House::sum(rows.sum[0]), own[3] = House::sum(rows.sum[1]);
  own[4] = needed, own[5] = float(problem.key_tiles(query, kKeys));
}

template <typename House>
std::vector<float> masked(const Shape& shape, int first_query, int first_key) {
  Values<float> out(hopper::kWarpgroup * (kKeys / 2 + 6));
  device::launch(mask_and_add<House>, 1, hopper::kWarpgroup, 0, nullptr, House::problem(shape), first_query,
                 first_key, out.data());
  return out.get();
}

TEST_F(CommonHopper, TheSameKeysAreHiddenAndTheSameRowsAddedUp) {
  for (bool causal : {false, true})
    for (int seqlen_q : {1, 70, 200})
      for (int seqlen_k : {1, 40, 300})
        for (int first_query : {0, 64})
          for (int first_key : {0, 32}) {
            const Shape shape{
                .seqlen_q = seqlen_q, .seqlen_k = seqlen_k, .visibility = Visibility::causal_if(causal)};
            ASSERT_EQ(masked<Common>(shape, first_query, first_key),
                      masked<Chapter5>(shape, first_query, first_key))
                << describe(shape);
          }
}

}  // namespace
}  // namespace flashbook::testing
