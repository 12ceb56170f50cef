//| # The switches of step 5, each changed
//|
//| A version of the kernel is a type (`step5_persistent.cuh`), so a type that derives from it can change a switch. The bench
//| times them in turn with step 5 as it is: that is the chapter's ablation table. The tests hold each against the oracle.
//|
//| ![What the consumers of a block do at the same time in steps 2 to 5](../../../docs/figures/pingpong_timeline.svg)
#pragma once
#include "chapters/05_flash_attention_3/host/launch.cuh"

namespace flashbook::flash3 {

/// Step 5 as it is.
template <typename Config>
struct AsItIs : Config {};

//| The first two concern the tile scheduler: which block takes which tile, and whether blocks are persistent. At N = 512
//| they bring the most.
/// A block for every tile of queries: nothing of one lies under the next. Where step 5 does that already,
/// persistent blocks.
template <typename Config>
struct OtherStay : Config {
  static constexpr Schedule kSchedule =
      Config::kSchedule == Schedule::single_tile ? Schedule::dynamic_persistent : Schedule::single_tile;
};

/// Under a causal mask every block takes each gridDim.x-th tile, without one whatever the counter gives.
template <typename Config>
struct OtherOrder : Config {
  static constexpr Schedule kSchedule =
      Config::kCausal ? Schedule::static_persistent : Schedule::dynamic_persistent;
};

//| The next three concern what a consumer does beside its products: the mask, the rescaling, the way out. Each is a few
//| percent.
/// Every tile asks whether it needs the mask, in one loop.
template <typename Config>
struct OneLoop : Config {
  static constexpr bool kSplitLoops = false;
};

/// Lazy rescaling where there was none, and none where there was.
template <typename Config>
struct OtherRescaling : Config {
  static constexpr bool kLazy = !Config::kLazy;
};

/// The output straight from the registers.
template <typename Config>
struct FromRegisters : Config {
  static constexpr bool kStoreByTma = false;
};

//| The last two did not pay everywhere. Pingpong is on where it helped. Trimming saves products under a causal mask, and
//| loses more in all other tiles than it saves.
/// Turns where there were none, and none where there were.
template <typename Config>
struct OtherPingpong : Config {
  static constexpr bool kPingpong = !Config::kPingpong;
};

/// A warpgroup leaves out the tiles of keys that only the warpgroups below it see.
template <typename Config>
struct Trimmed : Config {
  static constexpr bool kTrim = true;
};

}  // namespace flashbook::flash3
