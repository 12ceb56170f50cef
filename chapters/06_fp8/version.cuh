//| # The versions of one kernel
//|
//| Chapter 5 shows how a block is divided: a producer warpgroup that loads tiles, consumers that
//| multiply. In FP8 the producer has more to do. Its four warps:
//|
//| | warp | what it does |
//| | --- | --- |
//| | 0 | one thread, the *loader*, takes the next tile of queries, broadcasts it, and loads its keys and values by TMA |
//| | 1 | one thread loads each consumer's queries, and stores its output |
//| | 2, 3 | the *transposers* transpose each tile of values (`transpose.cuh`) |
//|
//| (From step 7 on the transposers work for all blocks, and the loader loads transposed values.) Keys pass
//| through a pipeline as in chapter 5. Values pass through two: `raw`, filled by TMA, and `transposed`,
//| filled by the transposers:
//|
//| | pipeline | who fills it | `full`: arrivals of a phase | who empties it | `empty`: arrivals of a phase |
//| | --- | --- | --- | --- | --- |
//| | `keys` | TMA, for the loader | 1, and the bytes | the consumers | 4 per warpgroup: lane 0 of each warp, when its products are done |
//| | `raw` | TMA, for the loader | 1, and the bytes | the transposers | 2: lane 0 of each warp, when it has read its part |
//| | `transposed` | the transposers | 2: lane 0 of each warp, when all lanes have written | the consumers | 4 per warpgroup |
//|
//| The steps differ only in switches. A first reading can skip those of steps 3, 4 and 9:
//|
//| | step | switch | what it does |
//| | --- | --- | --- |
//| | 1 | | V transposed byte by byte, P between 0 and 1, both products of a tile waited for together |
//| | 2 | `kMatrices` | V transposed by `ldmatrix`, byte permutations and `stmatrix` |
//| | | `kOverlap`, `kPingpong` | the next tile's scores over this tile's values; turns, except at d = 128 |
//| | | `kOffset` | P times 2^8, so that e4m3's range is used (`softmax.cuh`) |
//| | 3, 4 | `kBlockScales` | a scale for each tile of Q, K and V |
//| | 5 | `kSchedule`, `kSplitLoops`, `kLazy`, `kStoreByTma` | most of chapter 5's step 5 |
//| | 6 | `kSumsByProduct` | row sums are P times a tile of ones (`tiles.cuh`) |
//| | 7 | `kTransposeOnce` | V transposed once for all blocks (`step7_transpose_once.cuh`) |
//| | 8 | `kLine` | the encoding of P by a line instead of `ex2` and rounding (`softmax.cuh`) |
//| | 9 | `kPromoteTiles` | O is added to a running sum in shared memory every few tiles of keys (`step9_promoted_sums.cuh`) |
//|
//| **Budget**, bytes and registers of a consumer's thread:
//|
//| | d | queries | keys of a tile | Q | keys, raw, transposed | output | registers: O, S, P, Q |
//| | --- | --- | --- | --- | --- | --- | --- |
//| | 64 | 3 x 64 | 128 | 12 KB | 4, 2, 4 stages of 8 KB | 24 KB | 32, 64, 16, 8 of 152 |
//| | 128 | 2 x 64 | 128 | 16 KB | 3, 2, 3 stages of 16 KB | 32 KB | 64, 64, 16, 16 of 232 |
//| | 128, from 2k keys on | 3 x 64 | 96 | 24 KB | 3, 2, 3 stages of 12 KB | 48 KB | 64, 48, 12, 0 of 160 |
//| | 128, step 8 | 2 x 64 | 192 | 16 KB | 2, 1/2, 2 stages of 24 KB, and 12 KB on their way out | 32 KB | 64, 96, 24, 0 of 232 |
//| | 256 | 2 x 64 | 96 | 32 KB | 3, 2, 2 stages of 24 KB | | 128, 48, 12, 0 of 232 |
//| | 256, V transposed once | 2 x 64 | 128 | 32 KB | 2, 1/2, 2 stages of 32 KB, and 16 KB on their way out | | 128, 64, 16, 0 of 240 |
//| | 128, promoted | 3 x 64 | 96 | 24 KB | 3, 1, 3 stages of 12 KB, and 12 KB on their way out | 48 KB of running sums | 64, 48, 12, 0 of 160 |
//| | 256, promoted | 2 x 64 | 96 | 32 KB | 2, 1/3, 2 stages of 24 KB, and 8 KB on their way out | 64 KB of running sums | 128, 48, 12, 0 of 240 |
//|
//| The chapter's page counts the clocks of a tile at d = 128: all units would take about the same time, 1024
//| clocks at most. Steps 2 to 5 take about twice as long, since each consumer's products, maxima and
//| exponentials wait for one another. At d = 64 the exponentials take twice as long as the products; at
//| d = 256 it is the other way around.
//|
//| ![TMA loads keys and raw values, two warps transpose the values, consumers read keys and transposed
//| values](../../docs/figures/fp8_block.svg)
#pragma once
#include <type_traits>

#include "chapters/06_fp8/epilogue.cuh"
#include "chapters/06_fp8/step9_promoted_sums.cuh"
#include "chapters/06_fp8/tiles.cuh"
#include "common/hopper/block.h"
#include "common/hopper/tile_scheduler.h"

namespace flashbook::fp8 {

/// The choices that each version states.
struct Fp8Sizes {
  int head_dim;
  int consumers = 2;  ///< warpgroups that multiply, 64 queries each: 2 or 3
  int keys = 128;     ///< keys per tile
  bool causal = false;
};

/// One version of the kernel, as a type, with step 5's switches; `host/launch.cuh` has every step's tiles.
template <Fp8Sizes kSizes>
struct KernelTraits {
  static constexpr int kHeadDim = kSizes.head_dim, kConsumers = kSizes.consumers, kKeys = kSizes.keys;
  static constexpr int kPieceKeys = kKeys;  ///< keys of V that are transposed at a time
  static constexpr bool kCausal = kSizes.causal;
  static constexpr int kKeyStages = kHeadDim == 64 ? 4 : 3;
  static constexpr int kRawStages = 2;
  static constexpr int kTransposedStages = kHeadDim == 64 ? 4 : kHeadDim == 128 ? 3 : 2;
  //| Registers are divided as in chapter 5. The transposers need more than chapter 5's producer, because
  //| their loads wait in registers. The switches below are those of the table; a step derives from this
  //| version and changes some of them.
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  // Of a thread, after setmaxnreg. As in chapter 5: 40 + 2 * 232 = 3 * 168. Three consumers can give the
  // transposers more than there: P takes 16 registers, not 32. 56 + 3 * 152 = 4 * 128.
  static constexpr int kProducerRegisters = kConsumers == 3 ? 56 : 40;
  static constexpr int kConsumerRegisters = kConsumers == 3 ? 152 : 232;
  static constexpr int kTransposerBatch = 5;  ///< loads that wait in a transposer's registers, at most
  static constexpr bool kQueriesInRegisters = kHeadDim != 256;  // no registers are left at d = 256
  static constexpr bool kMatrices = true;
  static constexpr bool kOverlap = true;
  static constexpr bool kBlockScales = false;
  static constexpr bool kSumsByProduct = false;
  static constexpr bool kTransposeOnce = false;
  static constexpr bool kLine = false;
  static constexpr int kPromoteTiles = 0;  ///< tiles of keys between promotions; 0: sums are not promoted
  static constexpr bool kSplitLoops = true;
  static constexpr bool kPingpong = kHeadDim != 128;  // whichever measured faster
  static constexpr bool kLazy = true;
  static constexpr int kOffset = 6;
  static constexpr bool kStoreByTma = kHeadDim != 256;  // no room for the output
  static constexpr Schedule kSchedule = kCausal ? Schedule::dynamic_persistent : Schedule::static_persistent;
};

//| Shared memory has queries, three pipelines, outputs, the broadcast, and four barriers per consumer. A tile
//| of `transposed` has kHeadDim rows of kKeys bytes.
/// Shared memory of a block.
template <typename Traits>
struct Shared {
  static constexpr int kConsumers = Traits::kConsumers;
  using Values = TransposedTile<Traits::kHeadDim, Traits::kKeys, Traits::kPieceKeys>;
  Tile<kRowsPerWarpgroup, Traits::kHeadDim> q[kConsumers];
  Pipeline<Tile<Traits::kKeys, Traits::kHeadDim>, Traits::kKeyStages> keys;
  Pipeline<Tile<Traits::kPieceKeys, Traits::kHeadDim>, Traits::kRawStages> raw;
  Pipeline<Values, Traits::kTransposedStages> transposed;
  std::conditional_t<Traits::kStoreByTma, OutputTile<Traits::kHeadDim>, Nothing> output[kConsumers];
  std::conditional_t<(Traits::kPromoteTiles > 0), RunningSums<Traits::kHeadDim / 2>, Nothing>
      running[kConsumers];
  std::conditional_t<Traits::kSumsByProduct, Tile<kOnesColumns, kMmaK>, Nothing> ones;
  std::conditional_t<Traits::kTransposeOnce, typename Values::Piece, Nothing> outgoing;
  int raw_piece;  ///< with kTransposeOnce: the piece of V in `raw`, or on its way there
  TileBroadcast broadcast;
  Means<Traits::kHeadDim> means[kConsumers][2];  ///< for this query tile and the next
  float shift[kConsumers][kRowsPerWarpgroup];    ///< added to the log-sum-exp for the keys' means
  BlockBarriers<kConsumers> barriers;
};

}  // namespace flashbook::fp8
