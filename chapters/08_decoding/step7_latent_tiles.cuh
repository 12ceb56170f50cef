//| # Latent attention: tiles and products
//|
//| What lies in shared memory in [step 7](step7_latent.cuh), and the two products of it. A tile of keys is a tile of values too, and
//| becomes a tile of probabilities.
//|
//| ![A tile of K and one of V: where the 16-byte pieces of a row lie, and which product reads them. A product takes two pieces of every row of K, and all pieces of 16 rows of V](../../docs/figures/wgmma_tiles.svg)
#pragma once
#include "chapters/08_decoding/plan.cuh"
#include "common/attention/shape.h"
#include "common/hopper/tiles.h"
#include "common/ptx/mbarrier.h"

namespace flashbook::decoding {

/// The sizes of the kernel.
struct LatentKernelTraits {
  static constexpr int kRows = 64;                       ///< of a tile of queries
  static constexpr int kKeys = 64;                       ///< of a tile of keys, at most a page
  static constexpr int kPanels = kLatentKeyDim / 64;     ///< of a key: 64 columns each
  static constexpr int kPosition = kPanels - 1;          ///< the panel that is no value
  static constexpr int kBoxPanels = 3;                   ///< that a copy brings
  static constexpr int kBoxes = kPanels / kBoxPanels;    ///< copies of a tile
  static constexpr int kHalfPanels = kPosition / 2;      ///< panels of values that a warpgroup multiplies by
  static constexpr int kHalf = kLatentValueDim / 2;      ///< columns of O that a warpgroup has
  static constexpr int kWarps = 8, kConsumers = 32 * 8;  ///< of two warpgroups
  static constexpr int kThreads = kConsumers + 128;      ///< and a producer's
  /// A thread starts with 168 registers. They change hands by whole warpgroups, hence the producer's 128
  /// threads.
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
};

//| ## How a tile lies
//|
//| As in chapter 5: panels of 64 columns, whose rows are the 128 bytes of the widest swizzle. A key of 576 elements has nine. Eight of
//| them are values too, and the ninth has the position. Keys are read along their rows for the scores and across them for the values,
//| so one copy in shared memory is K and V at once: the descriptors differ, the bytes do not.

/// 64 rows of Q, or 64 keys.
template <typename T>
using LatentTile = Tile<T, 64, kLatentKeyDim>;
constexpr int kPanelBytes = 64 * kPanelRowBytes;

/// What a tile did to a row, for the warpgroup that did not compute its scores.
struct RowUpdate {
  float max;         ///< so far
  float correction;  ///< what was summed before must be multiplied by it
};

/// Shared memory of a block.
template <typename T>
struct LatentShared {
  LatentTile<T> q;
  LatentTile<T> keys[2];                           ///< of even and of odd tiles
  uint64_t full[2][LatentKernelTraits::kBoxes];    ///< three panels are there
  uint64_t empty[2][LatentKernelTraits::kBoxes];   ///< all have read them
  RowUpdate update[2][LatentKernelTraits::kRows];  ///< by even and by odd tiles
  int4 changed[2];  ///< by even and odd tiles: whether O must be corrected, a number a warp
  float sum[2][LatentKernelTraits::kRows];  ///< of each warpgroup's own tiles
  Segment with_others[2];                   ///< the block's parts of items that other blocks have parts of
  Segment segment[LatentKernelTraits::kWarps];                                   ///< that a warp works on
  Segments<LatentKernelTraits::kKeys>::Place place[LatentKernelTraits::kWarps];  ///< and where it goes on
};

//| **Named barriers.** P of an even tile is *published* to the second warpgroup, P of an odd one to the first. Before that, a
//| warpgroup's own four warps must agree that P is whole.
enum LatentBarrier {
  kBothWarpgroups = 1,  // 0 is __syncthreads
  kScoresEven,
  kPublishedEven,
  kPublishedOdd,
  kFirstWarpgroup,
  kSecondWarpgroup
};

/// The phases of the two stages. A segment may end with an even tile, so each stage has its own.
struct LatentPhases {
  uint32_t bits = 0;

  __device__ __forceinline__ uint32_t of(int stage) const { return bits >> stage & 1; }
  __device__ __forceinline__ void advance(int stage) { bits ^= 1u << stage; }
};

//| ## The products
//|
//| Scores take 36 products: four for each of nine panels, each 16 columns deep. A warpgroup waits for three panels at a time.

/// Issues scores = Q K^T of the tile in `stage`, as one group.
template <typename T>
__device__ __forceinline__ void issue_scores(float (&scores)[32], LatentShared<T>& shared, int stage,
                                             uint32_t phase) {
  const uint64_t q = k_major(shared.q);
  const uint64_t k = k_major(shared.keys[stage]);
  wgmma_pin(scores);
#pragma unroll
  for (int panel = 0; panel < LatentKernelTraits::kPanels; ++panel) {
    if (panel % LatentKernelTraits::kBoxPanels == 0)
      mbarrier_wait(&shared.full[stage][panel / LatentKernelTraits::kBoxPanels],
                    phase);  // three panels are there
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint32_t at = panel * kPanelBytes + step * 32;
      wgmma<T, 64>(scores, wgmma_advance(q, at), wgmma_advance(k, at), panel + step > 0);
    }
  }
  wgmma_commit();
}

//| **P takes the place of the position.** When its scores are made, nobody needs a tile's ninth panel any more, and a tile of
//| P is just as large: 64 rows of 64 probabilities. So P has no room of its own. There would be none: Q and two stages take
//| 216 of 227 KB.
//|
//| From there it is the left operand of both warpgroups. The right one is four panels of the same tile, read across.

/// Issues output += P V of the tile in `stage`, as one group. V: the warpgroup's half.
template <typename T>
__device__ __forceinline__ void issue_accumulate(float (&output)[128], LatentShared<T>& shared, int stage,
                                                 int warpgroup) {
  const auto& panels = shared.keys[stage].element;
  const uint64_t p = wgmma_descriptor<Swizzle::b128>(panels[LatentKernelTraits::kPosition], 16, 1024);
  const uint64_t v =
      wgmma_descriptor<Swizzle::b128>(panels[warpgroup * LatentKernelTraits::kHalfPanels], kPanelBytes, 1024);
  wgmma_pin(output);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step)  // 16 keys each
    wgmma<T, LatentKernelTraits::kHalf, Major::k, Major::mn>(output, wgmma_advance(p, step * 32),
                                                             wgmma_advance(v, step * 16 * 128), true);
  wgmma_commit();
}

/// Says that this warp has read its half of the values in `stage`, and P: all of it but the other one's
/// panels.
template <typename T>
__device__ __forceinline__ void release(LatentShared<T>& shared, int stage, int warpgroup) {
  const int box = threadIdx.x % 32;  // a lane for each
  if (box >= warpgroup && box < LatentKernelTraits::kBoxes) mbarrier_arrive(&shared.empty[stage][box]);
}

}  // namespace flashbook::decoding
