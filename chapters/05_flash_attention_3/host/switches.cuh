//| # The switches of step 5, each changed
//|
//| A version of the kernel is a type (`step5_persistent.cuh`), so a type that derives from it can change a
//| switch. The bench times these types interleaved with unmodified step 5 for the chapter's ablation table.
//| The tests compare each with the oracle.
//|
//| ![What the consumers of a block do at the same time in steps 2 to
//| 5](../../../docs/figures/pingpong_timeline.svg)
#pragma once
#include "chapters/05_flash_attention_3/host/launch.cuh"

namespace flashbook::fa3 {

/// Step 5, unchanged.
template <typename Traits>
struct AsItIs : Traits {};

//| The first two concern the tile scheduler: which block takes which tile, and whether blocks are persistent.
//| At N = 512 they gain the most.
/// One block per query tile, so tiles do not overlap.
template <typename Traits>
struct OtherStay : Traits {
  static constexpr Schedule kSchedule = Schedule::single_tile;
};

/// Under a causal mask each block takes every gridDim.x-th tile; without a mask, a counter hands out tiles.
template <typename Traits>
struct OtherOrder : Traits {
  static constexpr Schedule kSchedule =
      Traits::kCausal ? Schedule::static_persistent : Schedule::dynamic_persistent;
};

//| The next three concern a consumer's work around its products: the mask, the rescaling, the output. Each
//| gains a few percent.
/// One loop, in which every tile checks whether it needs the mask.
template <typename Traits>
struct OneLoop : Traits {
  static constexpr bool kSplitLoops = false;
};

/// Turns lazy rescaling on where it was off, and off where it was on.
template <typename Traits>
struct OtherRescaling : Traits {
  static constexpr bool kLazy = !Traits::kLazy;
};

/// Stores the output straight from registers.
template <typename Traits>
struct FromRegisters : Traits {
  static constexpr bool kStoreByTma = false;
};

//| Pingpong did not pay everywhere: it is on where it helped.
/// Switches pingpong on where it was off, and off where it was on.
template <typename Traits>
struct OtherPingpong : Traits {
  static constexpr bool kPingpong = !Traits::kPingpong;
};

}  // namespace flashbook::fa3
