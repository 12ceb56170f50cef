//| # Pingpong: consumers take turns
//|
//| With **pingpong** the consumers issue their products one after the other, always in the same order: 0, 1,
//| 0, 1, or 0, 1, 2, 0, if there are three. While the tensor cores work for one, the others compute their
//| softmax. Only the issue takes turns, since the products run asynchronously. Without pingpong the consumers
//| begin together, and start to alternate only after two or three tiles, as the timeline of
//| FlashAttention-3's chapter shows.
//|
//| Each consumer has a named barrier, which expects 256 arrivals: 128 from its own threads, which wait there
//| (`take_turn`), and 128 from the previous consumer, whose threads arrive and continue (`pass_turn`). The
//| first turn must be passed on, too, so the last consumer does so once before its loop (`open_turns`). All
//| consumers take the same number of turns.
//|
//| ![Without pingpong the consumers begin side by side; with it, they alternate from the first
//| tile](../../docs/figures/pingpong_timeline.svg)
#pragma once
#include "common/hopper/problem.h"
#include "common/ptx/barrier.h"

namespace flashbook::hopper {

/// The uses of the block's named barriers.
enum NamedBarrier {
  kWholeBlock,  ///< __syncthreads
  kFirstTurn,   ///< consumer 0 may issue
  kSecondTurn,  ///< consumer 1 may issue
  kThirdTurn    ///< consumer 2 may issue
};

constexpr int kTurnArrivals = 2 * kWarpgroup;  ///< one warpgroup waits, one arrives

//| A *named barrier* is one of the 16 barriers of a block. `sync` waits until the expected number of threads
//| have arrived; `arrive` counts a thread and lets it continue. So one warpgroup can wait for another without
//| stopping it. Barrier 0 is `__syncthreads`, so turns begin at 1. A kernel without `Traits::kPingpong` calls
//| the same functions, and they compile to nothing.
/// Waits until the previous consumer has issued its products. There is one branch per consumer, since
/// barriers are named at compile time.
template <typename Traits>
__device__ __forceinline__ void take_turn(int consumer) {
  if constexpr (Traits::kPingpong) {
    if (consumer == 0) named_barrier_sync<kFirstTurn, kTurnArrivals>();
    if (consumer == 1) named_barrier_sync<kSecondTurn, kTurnArrivals>();
    if (Traits::kConsumers == 3 && consumer == 2) named_barrier_sync<kThirdTurn, kTurnArrivals>();
  }
}

//| The turn is passed on as soon as products are *issued*, not when they are complete: they queue at the
//| tensor cores.
/// Lets the next consumer issue; the last consumer lets the first one issue.
template <typename Traits>
__device__ __forceinline__ void pass_turn(int consumer) {
  if constexpr (Traits::kPingpong) {
    if (consumer == Traits::kConsumers - 1) named_barrier_arrive<kFirstTurn, kTurnArrivals>();
    if (consumer == 0) named_barrier_arrive<kSecondTurn, kTurnArrivals>();
    if (Traits::kConsumers == 3 && consumer == 1) named_barrier_arrive<kThirdTurn, kTurnArrivals>();
  }
}

/// Gives the first consumer its first turn. Called once by every consumer, before its first take_turn.
template <typename Traits>
__device__ __forceinline__ void open_turns(int consumer) {
  if constexpr (Traits::kPingpong) {
    if (consumer == Traits::kConsumers - 1) named_barrier_arrive<kFirstTurn, kTurnArrivals>();
  }
}

}  // namespace flashbook::hopper
