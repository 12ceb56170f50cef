/// \file
/// Consumers issue their products in turn: take_turn, issue, pass_turn.
/// chapters/05_flash_attention_3/pingpong.cuh explains it.
#pragma once
#include "common/hopper/problem.h"
#include "common/ptx/barrier.h"

namespace flashbook::hopper {

/// What the block's named barriers are for.
enum NamedBarrier {
  kWholeBlock,    ///< __syncthreads
  kTurnOfFirst,   ///< consumer 0 may issue
  kTurnOfSecond,  ///< consumer 1 may issue
  kTurnOfThird    ///< consumer 2 may issue
};

constexpr int kTurnArrivals = 2 * kWarpgroup;  ///< one warpgroup waits, one arrives

/// Waits until the consumer before has issued its products. A branch for each, since barriers are named at
/// compile time.
template <int kConsumers>
__device__ __forceinline__ void take_turn(int consumer) {
  if (consumer == 0) named_barrier_sync<kTurnOfFirst, kTurnArrivals>();
  if (consumer == 1) named_barrier_sync<kTurnOfSecond, kTurnArrivals>();
  if (kConsumers == 3 && consumer == 2) named_barrier_sync<kTurnOfThird, kTurnArrivals>();
}

/// Lets the next consumer issue; after the last it is the first one's turn.
template <int kConsumers>
__device__ __forceinline__ void pass_turn(int consumer) {
  if (consumer == kConsumers - 1) named_barrier_arrive<kTurnOfFirst, kTurnArrivals>();
  if (consumer == 0) named_barrier_arrive<kTurnOfSecond, kTurnArrivals>();
  if (kConsumers == 3 && consumer == 1) named_barrier_arrive<kTurnOfThird, kTurnArrivals>();
}

/// Gives the first consumer its first turn. Called once by every consumer, before its first take_turn.
template <int kConsumers>
__device__ __forceinline__ void open_turns(int consumer) {
  if (consumer == kConsumers - 1) named_barrier_arrive<kTurnOfFirst, kTurnArrivals>();
}

}  // namespace flashbook::hopper
