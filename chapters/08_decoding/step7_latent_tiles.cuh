//| # Latent attention: tiles and products
//|
//| This file has the shared memory of [step 7](step7_latent.cuh) and its two products. A tile of keys is also
//| a tile of values, and becomes a tile of probabilities.
//|
//| ![A tile of K and one of V: where the 16-byte pieces of a row lie, and which product reads them. A product
//| takes two pieces of every row of K, and all pieces of 16 rows of V](../../docs/figures/wgmma_tiles.svg)
#pragma once
#include "chapters/08_decoding/plan.cuh"
#include "common/attention/spec.h"
#include "common/hopper/tiles.h"
#include "common/ptx/math.h"
#include "common/ptx/mbarrier.h"

namespace flashbook::decoding {

/// The sizes of the kernel.
struct LatentKernelTraits {
  static constexpr int kRows = 64;                            ///< rows per tile of queries
  static constexpr int kKeys = 64;                            ///< keys per tile, at most a page
  static constexpr int kStages = 3;                           ///< tiles of keys in shared memory
  static constexpr int kPanels = kLatentKeyDim / 64;          ///< panels per key, of 64 columns each
  static constexpr int kPosition = kPanels - 1;               ///< the panel that is not a value
  static constexpr int kBoxPanels = 3;                        ///< panels per copy
  static constexpr int kBoxes = kPanels / kBoxPanels;         ///< copies per tile
  static constexpr int kHalfPanels = kPosition / 2;           ///< panels of values per warpgroup
  static constexpr int kHalf = kLatentValueDim / 2;           ///< columns of O per warpgroup
  static constexpr int kWarps = 8, kConsumers = 32 * 8;       ///< warps and threads that hold O
  static constexpr int kThreads = kConsumers + 128;           ///< with the warpgroup that computes scores
  static constexpr int kSteps = kLatentValueDim / kMmaK - 1;  ///< steps of 16 columns of Q in registers
  /// Every thread starts with 168 registers; setmaxnreg moves them between whole warpgroups.
  static constexpr int kScoreRegisters = 184, kValueRegisters = 160;
};

//| ## The layout of a tile
//|
//| As in chapter 5, a tile is made of panels of 64 columns, whose rows are the 128 bytes of the widest
//| swizzle. A key of 576 elements has nine panels. Eight of them are values too, and the ninth holds the
//| position. Keys are read along their rows for the scores and across them for the values, so one copy in
//| shared memory is both K and V: only the descriptors differ.

/// 64 rows of Q, or 64 keys.
template <typename T>
using LatentTile = Tile<T, 64, kLatentKeyDim>;
constexpr int kPanelBytes = 64 * kPanelRowBytes;

/// Shared memory of a block.
template <typename T>
struct LatentShared {
  LatentTile<T> keys[LatentKernelTraits::kStages];
  Tile<T, LatentKernelTraits::kRows, kPanel> q_position;                    ///< Q's last panel
  T q_last[LatentKernelTraits::kRows][kMmaK];                               ///< and the 16 columns before it
  uint64_t full[LatentKernelTraits::kStages][LatentKernelTraits::kBoxes];   ///< three panels have landed
  uint64_t empty[LatentKernelTraits::kStages][LatentKernelTraits::kBoxes];  ///< all warps have read them
  uint64_t scored[LatentKernelTraits::kStages];                             ///< a tile's scores are computed
  uint64_t published[LatentKernelTraits::kStages];                          ///< the tile's P has been written
  uint64_t rows_known;                             ///< the results of a segment's rows have been written
  float correction[2][LatentKernelTraits::kRows];  ///< corrections of O, for alternating tiles
  Segment with_others[2];  ///< the block's parts of items that it shares with other blocks
  Segment segment[2];      ///< the segment of the warpgroups that have O, and of the one with scores
  Segments<LatentKernelTraits::kKeys>::Place place[2];  ///< where each segment continues
};

//| **Barriers.** How many warps release each third of a tile? Four release the first, which has values of the
//| left half only; eight the second, which has values of both halves, and the last, with values of the right
//| half and P.

/// Initialises the barriers. One thread.
template <typename T>
__device__ __forceinline__ void initialise(LatentShared<T>& shared) {
  for (int stage = 0; stage < LatentKernelTraits::kStages; ++stage) {
    for (int box = 0; box < LatentKernelTraits::kBoxes; ++box) {
      const int i = stage * LatentKernelTraits::kBoxes + box;
      mbarrier_init(&shared.full[stage][box], 1);
      name_mbarrier(&shared.full[stage][box], "full", i);
      mbarrier_init(&shared.empty[stage][box], box == 0 ? 4 : 8);
      name_mbarrier(&shared.empty[stage][box], "empty", i);
    }
    mbarrier_init(&shared.scored[stage], 4);
    name_mbarrier(&shared.scored[stage], "scored", stage);
    mbarrier_init(&shared.published[stage], 4);
    name_mbarrier(&shared.published[stage], "published", stage);
  }
  mbarrier_init(&shared.rows_known, 4);
  name_mbarrier(&shared.rows_known, "rows known");
  fence_mbarrier_init();  // TMA sees the barriers
}

//| **Named barriers** for the warpgroups that have O, for the one that computes scores, and for all when
//| queries are loaded.
enum LatentBarrier {
  kValues = 1,  // 0 is __syncthreads
  kScores,
  kQueries
};

//| **Flags.** A segment begins with the first stage, and a stage's phase continues from segment to segment.
//| Everything that alternates between two values is a bit of one register: the phases of the three stages,
//| the slot of the next corrections, and the phase of the barrier that ends a segment.
constexpr int kTurn = LatentKernelTraits::kStages, kSegment = kTurn + 1;

/// A bit for each stage, kTurn and kSegment.
struct LatentFlags {
  uint32_t bits = 0;

  __device__ __forceinline__ uint32_t of(int flag) const { return bits >> flag & 1; }
  __device__ __forceinline__ void flip(int flag) { bits ^= 1u << flag; }
};

/// Returns the stage after `stage`.
__device__ __forceinline__ int next_stage(int stage) {
  return stage == LatentKernelTraits::kStages - 1 ? 0 : stage + 1;
}

//| **Registers are scarce**: apart from Q and scores, or O, a thread has some 24. Two hints help the compiler
//| at almost no cost. It would compute values derived from the thread's number once and keep them;
//| `thread_number` hides where the number comes from (`common/ptx/math.h`). And descriptors must be in
//| uniform registers. The compiler keeps a stage that changes from tile to tile in a per-thread register and
//| copies 72 descriptors per tile from it, whereas the result of a warp reduction is in a uniform one.

/// Returns the thread's number in the block. Values derived from it are recomputed each time and take no
/// register in between.
__device__ __forceinline__ unsigned thread_number() { return hide_origin(threadIdx.x); }

/// Returns `value`, the same in all lanes, in a uniform register.
__device__ __forceinline__ int uniform(int value) {
  return int(__reduce_or_sync(kWholeWarp, unsigned(value)));
}

/// Returns the first of a thread's two rows in a tile of 64; the other is 8 further.
__device__ __forceinline__ int row_in_tile(unsigned thread) {
  return thread % kWarpgroup / 32 * 16 + thread % 32 / 4;
}

//| ## The products
//|
//| Scores take 36 products: four for each of nine panels, each 16 columns deep. In 31 of them the left
//| operand is in registers, 124 per thread; the other five read it from shared memory. The warpgroup waits
//| for three panels at a time.

/// Issues scores = Q K^T of the tile in `stage`, as one group.
template <typename T>
__device__ __forceinline__ void issue_scores(float (&scores)[32],
                                             const uint32_t (&q)[LatentKernelTraits::kSteps][4],
                                             LatentShared<T>& shared, int stage, uint32_t phase) {
  constexpr int kSteps = LatentKernelTraits::kSteps, kBoxPanels = LatentKernelTraits::kBoxPanels;
  const uint64_t position = k_major(shared.q_position);
  const uint64_t last = wgmma_descriptor<Swizzle::b32>(shared.q_last, 16, 256);
  const uint64_t k = k_major(shared.keys[stage]);
  wgmma_pin(scores);
#pragma unroll
  for (int step = 0; step < LatentKernelTraits::kPanels * 4; ++step) {
    const int panel = step / 4, in_panel = step % 4 * 32;  // in bytes
    if (step % (4 * kBoxPanels) == 0) mbarrier_wait(&shared.full[stage][panel / kBoxPanels], phase);
    if (in_panel == 0) wgmma_fence();
    const uint64_t keys = wgmma_advance(k, panel * kPanelBytes + in_panel);
    if (step < kSteps)
      wgmma<T, 64>(scores, q[step % kSteps], keys, step > 0);
    else
      wgmma<T, 64>(scores, step == kSteps ? last : wgmma_advance(position, in_panel), keys, true);
  }
  wgmma_commit();
}

//| **P takes the place of the position.** Once a tile's scores are computed, its ninth panel is no longer
//| needed, and a tile of P has the same size: 64 rows of 64 probabilities. There is no space for P elsewhere:
//| three stages and the shared part of Q take 226 of 227 KB.
//|
//| From there it is the left operand of both warpgroups. The right operand is four panels of the same tile,
//| read across.

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
  for (int step = 0; step < 4; ++step)  // 16 keys per step
    wgmma<T, LatentKernelTraits::kHalf, Major::k, Major::mn>(output, wgmma_advance(p, step * 32),
                                                             wgmma_advance(v, step * 16 * 128), true);
  wgmma_commit();
}

/// Signals that this warp has read its half of the values in `stage`, and P, which is everything except the
/// other half's panels.
template <typename T>
__device__ __forceinline__ void release(LatentShared<T>& shared, int stage, int warpgroup) {
  const int box = thread_number() % 32;  // one lane per box
  __syncwarp();                          // all lanes have read their corrections
  if (box >= warpgroup && box < LatentKernelTraits::kBoxes) mbarrier_arrive(&shared.empty[stage][box]);
}

}  // namespace flashbook::decoding
