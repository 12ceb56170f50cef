// The record of chapter 5's loops: is it whole, is it in order, and do turns alternate?
#include "bench/recorded.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/app/call.h"
#include "common/attention/inputs.h"
#include "tests/require_gpu.h"
#include "tests/support/machine.h"
#include "tests/support/shapes.h"

namespace flashbook::testing {
namespace {

constexpr int kTiles = 8;  // of 128 keys; the loop is over all but the first of them, the last

class RecordedTest : public MachineTest {
 protected:
  /// What one block of `step` does; the simulator runs warps in the order of `seed`.
  static std::vector<Pass> record(int step, int head_dim, int seed) {
    const Shape shape = make_shape(192, kTiles * 128, head_dim);
    const RandomWarpOrder order(seed);
    run_once(recorded_chapter(), shape, make_inputs(shape, InputKind::normal, 1), step);
    return take_record();
  }

  /// Those of the consumers, tile by tile, and within a tile in the order of consumers.
  static std::vector<Pass> of_consumers(std::vector<Pass> passes) {
    std::erase_if(passes, [](const Pass& pass) { return pass.warpgroup == 0; });
    return passes;
  }

  /// How many turns begin before the one before them has issued its products.
  static int out_of_turn(const std::vector<Pass>& passes) {
    int count = 0;
    for (std::size_t i = 1; i < passes.size(); ++i)
      count += passes[i].at.at("turn") <= passes[i - 1].at.at("issued");
    return count;
  }
};

TEST_F(RecordedTest, HasEveryMomentOfEveryTileInOrder) {
  for (int head_dim : {64, 128})
    for (int step : {2, 3, 4, 5}) {
      SCOPED_TRACE("step " + std::to_string(step) + ", head_dim " + std::to_string(head_dim));
      std::vector<std::string> moments = {"landed", "turn", "issued", "scores", "softmax", "values", "end"};
      if (step < 4) std::erase(moments, "values");  // they are done with the scores
      const std::vector<Pass> passes = of_consumers(record(step, head_dim, 1));
      const int consumers = head_dim == 64 ? 3 : 2;
      ASSERT_EQ(passes.size(), std::size_t(consumers * (kTiles - 1)));
      std::map<int, int64_t> last;  // of a warpgroup
      for (std::size_t i = 0; i < passes.size(); ++i) {
        const Pass& pass = passes[i];
        EXPECT_EQ(pass.tile, kTiles - 2 - int(i) / consumers);
        EXPECT_EQ(pass.warpgroup, 1 + int(i) % consumers);
        ASSERT_EQ(pass.at.size(), moments.size());
        for (const std::string& moment : moments)
          EXPECT_LT(std::exchange(last[pass.warpgroup], pass.at.at(moment)), pass.at.at(moment)) << moment;
      }
    }
}

TEST_F(RecordedTest, KeysAreSentBeforeTheyLand) {
  for (int step : {2, 3, 4, 5})
    for (const std::vector<Pass> passes = record(step, 64, 2); const Pass& pass : of_consumers(passes)) {
      // What a tile's turn waits for first: with overlap its keys, else the values of the tile before.
      const std::string first = step < 4 ? "values_sent" : "keys_sent";
      const int tile = step < 4 ? pass.tile + 1 : pass.tile;
      const auto sent = std::ranges::find_if(
          passes, [&](const Pass& producer) { return producer.warpgroup == 0 && producer.tile == tile; });
      ASSERT_NE(sent, passes.end());
      EXPECT_LT(sent->at.at(first), pass.at.at("landed")) << "step " << step << ", tile " << tile;
    }
}

TEST_F(RecordedTest, WithPingpongTurnsAlternate) {
  for (int seed = 1; seed <= 8; ++seed)
    for (const auto& [step, head_dim] : {std::pair(3, 64), {4, 64}, {5, 64}, {3, 128}, {4, 128}})
      EXPECT_EQ(out_of_turn(of_consumers(record(step, head_dim, seed))), 0)
          << "step " << step << ", head_dim " << head_dim << ", seed " << seed;
}

TEST_F(RecordedTest, WithoutItTheyDoNotHaveTo) {
  if (device::machine() == device::Machine::gpu) GTEST_SKIP() << "on a GPU they may all the same";
  int out = 0;
  for (int seed = 1; seed <= 8; ++seed) out += out_of_turn(of_consumers(record(2, 64, seed)));
  EXPECT_GT(out, 0);
}

}  // namespace
}  // namespace flashbook::testing
