//| # The block of step 6
//|
//| How large tiles are, and what lies in shared memory. Both are as in chapter 7, except that each stage says which tile it holds.
//|
//| ![The five products](../../docs/figures/backward_products.svg)
#pragma once
#include <type_traits>

#include "chapters/09_masks/step6_transposed.cuh"
#include "common/hopper/gradients.h"

namespace flashbook::masks {

//| ## Versions
//|
//| Up to d = 128 a block sums all gradients of its keys. At d = 256 the sums of dK and dV do not fit the registers together, so one launch computes dV and another dK and dQ, as in chapter 7. A softcap has the same trouble at every head dimension, and the same cure. A tile has 64 queries, and 128 at d = 64.
/// The gradients that a block sums.
enum class Sums {
  all,              ///< dV, dK, dQ: five products
  values,           ///< dV: S and dV
  keys_and_queries  ///< dK and dQ: S, dP, dK and dQ
};

/// One version of the kernel, as a type.
template <int kHeadDim_, Sums kSums_ = kHeadDim_ == 256 ? Sums::values : Sums::all>
struct GradientSizes {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr Sums kSums = kSums_;
  static constexpr int kQueries = kHeadDim == 64 ? 128 : 64;  ///< of a tile
  static constexpr int kStages = kSums == Sums::keys_and_queries ? 1 : 2, kDsStages = kStages;
  static constexpr bool kAddByTma = kSums == Sums::all;  ///< else there is no dQ, or no room for it
  static constexpr int kThreads = (kKeyConsumers + 1) * kWarpgroup;
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
};

//| ## Shared memory
//|
//| At d = 128: K and V 64 KB, two stages of Q and of dO with 64 queries 64 KB, two tiles of dS 32 KB, dQ as floats 32 KB, together 192 KB. New is what lies beside a stage of Q: the list's entry for its tile, and the head. So a consumer needs no list: it is told how many rounds there are, and finds the rest beside the stage.

/// What the block's named barriers are for.
enum GradientBarrier {
  kWholeBlock,  ///< __syncthreads
  kDsWritten,   ///< both warpgroups have laid down their dS
  kDsRead       ///< and dQ of the round before has been computed from it
};

/// Which tile of queries lies in a stage.
struct QueryTile {
  int head, entry;  ///< a query head; of a list (step6_transposed.cuh)
};

/// Stands for a part of shared memory that a version of the kernel does without.
struct Unused {};

//| Tiles of dS are as wide as the tile of keys. dQ lies in the order of registers, four floats of a thread side by side. So 32 lanes write 512 bytes without a conflict, and TMA adds them to the workspace in this order.
/// Shared memory of a block.
template <typename T, typename Sizes>
struct GradientShared {
  static constexpr int kHeadDim = Sizes::kHeadDim, kQueries = Sizes::kQueries;
  using Keys = hopper::Tile<T, kTileKeys, kHeadDim>;
  using Queries = hopper::Tile<T, kQueries, kHeadDim>;
  static constexpr bool kHasDp = Sizes::kSums != Sums::values;
  using DsTiles = hopper::Tile<T, kQueries, kTileKeys>[Sizes::kDsStages];
  using DqParts = float4[kKeyConsumers][hopper::DqPart<kHeadDim, kQueries>::kFloats / 4][kWarpgroup];

  //| K and V have one place each, Q and dO a pipeline each. A block that sums dV alone has no V, no dS and no dQ.
  Keys k;
  std::conditional_t<kHasDp, Keys, Unused> v;
  hopper::Pipeline<Queries, Sizes::kStages> q;
  hopper::Pipeline<Queries, Sizes::kStages> d_o;
  std::conditional_t<kHasDp, DsTiles, Unused> ds;
  std::conditional_t<Sizes::kAddByTma, DqParts, Unused> dq;
  alignas(128) float lse[Sizes::kStages][kQueries];  // of the rows of q, as the workspace has it
  alignas(128) float d[Sizes::kStages][kQueries];    // of the rows of d_o
  //| The broadcast tells all others which tile of keys is next, and is a pipeline of two stages, as in forward. The ranges of the tile's keys are computed once, and read in each partial tile.
  hopper::Pipeline<KeyWork, 2> work;     // a broadcast: one thread fills it, all others read
  QueryTile query_tile[Sizes::kStages];  // what lies in a stage of q
  QueriesOfKey seen[kTileKeys];          // of each key, by ranges
  //| K and V share one pair of barriers, and each consumer's dQ has a pair on its way to the thread that adds.
  uint64_t keys_full, keys_empty;
  uint64_t dq_full[kKeyConsumers], dq_empty[kKeyConsumers];
};

}  // namespace flashbook::masks
