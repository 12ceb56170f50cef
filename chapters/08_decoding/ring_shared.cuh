//| # The ring's shared memory, and the arguments of a launch
//|
//| Shared memory is one ring of stages. The number of columns and rows determines everything else: the keys
//| per stage, the rows per block, and how keys are divided among warps.
//|
//| ![A producer warp keeps three stages of 32 KB filled; eight consumer warps each take 16 keys of a tile and
//| merge at the end](../../docs/figures/decode_ring.svg)
#pragma once
#include "chapters/08_decoding/merge.cuh"
#include "chapters/08_decoding/plan.cuh"
#include "common/hopper/pipeline.h"
#include "common/ptx/tma.h"

namespace flashbook::decoding {

constexpr int kStageBytes = 32 * 1024;
constexpr int kRowsPerMma = 16;  ///< rows that mma.sync multiplies, and keys per chunk

//| ## A configuration
//|
//| A tile has 16, 32 or 64 rows of queries; warps that are not needed for more rows share the tile's keys. An
//| element of the cache has two bytes, and in [step 8](step8_e4m3_cache.cuh) one, so that a stage holds twice
//| as many keys.

/// The sizes of a configuration.
struct RingSizes {
  int head_dim;
  int row_tiles = 1;      ///< 16-row tiles: 1; up to d = 128 also 2 and 4
  int element_bytes = 2;  ///< per element of K and V
  int blocks = 1;         ///< per multiprocessor: 1; 2 with 16 rows up to d = 128
};

/// The sizes, and what follows from them.
template <RingSizes kSizes>
struct RingKernelTraits {
  static constexpr int kHeadDim = kSizes.head_dim, kElementBytes = kSizes.element_bytes;
  static constexpr int kRowTiles = kSizes.row_tiles, kBlocks = kSizes.blocks;
  static constexpr int kRows = kRowTiles * kRowsPerMma;  ///< rows per tile of queries
  static constexpr int kRowBytes = kHeadDim * kElementBytes;
  static constexpr int kBytesPerStage = kStageBytes / kBlocks;
  static constexpr int kKeys = kBytesPerStage / kRowBytes;  ///< keys per tile: 256, 128, 64 in 16 bits
  /// At d = 256 a thread has 128 sums and 64 registers of Q: only five warps may have that many.
  static constexpr int kWarps = (kHeadDim == 256 ? 4 : 8) / kBlocks;
  static constexpr int kKeyWarps = kWarps / kRowTiles;             ///< warps that share a tile's keys
  static constexpr int kChunks = kKeys / kRowsPerMma / kKeyWarps;  ///< chunks of 16 keys per warp and tile
  /// Chunks whose scores a thread holds at a time, as far as registers allow.
  static constexpr int kChunksAtOnce = kHeadDim < 256 && kRowTiles == 1 && kChunks > 1 ? 2 : 1;
  static constexpr int kConsumers = kWarps * 32;    ///< consumer threads
  static constexpr int kThreads = kConsumers + 32;  ///< including the producer warp
  static constexpr int kStages = 3;
  static constexpr bool kTileByTile = false;  ///< keys are released with the values, not before
  /// A warp's sums, in float32, when warps merge: they fill whole stages of the ring.
  static constexpr int kWarpSumBytes = kRowsPerMma * kHeadDim * 4;
  static constexpr int kMergeStages = ceil_div(kWarps * kWarpSumBytes, kBytesPerStage);
  static_assert(kChunks >= 1 && kMergeStages <= kStages,
                "a tile has keys for every warp, and sums fit the ring");
};

//| A stage is 32 KB of keys or values in the layout of memory: for 16-bit types 256 keys at $d = 64$, 128 at
//| 128, 64 at 256. If a multiprocessor has two blocks, it is half of that.
template <typename Traits>
struct alignas(128) Stage {
  unsigned char byte[Traits::kBytesPerStage];
};

/// Shared memory of a block.
template <typename Traits>
struct RingShared {
  Pipeline<Stage<Traits>, Traits::kStages> ring;
  float max[Traits::kWarps][kRowsPerMma];  ///< maxima of each warp's rows, times scale_log2
  float sum[Traits::kWarps][kRowsPerMma];
  // Each warp's segment, and where it continues: in registers, they would displace sums.
  Segment segment[Traits::kWarps];
  typename Segments<Traits::kKeys>::Place place[Traits::kWarps];
};

enum RingBarrier { kWholeBlock, kAllConsumers };  ///< named barriers

//| ## Arguments of a launch
//|
//| A contiguous cache is treated as pages as long as a sequence, without a table, so one kernel handles both.
/// The location of keys and values: pages of 2^page_bits keys, of which a sequence has `pages_of_sequence` in
/// its table. Without a table a sequence is one page, of any length.
struct Cache {
  const unsigned char *k, *v;    ///< [pages, kv_heads, keys of a page, head_dim]
  Strides k_strides, v_strides;  ///< in bytes; `batch` leads from page to page
  const int* table;              ///< [batch, pages_of_sequence], or null
  int page_bits;
  int pages_of_sequence;
  int copy_rows;           ///< keys per copy: at most a page, at most a tile
  device::Divisor copies;  ///< copies per tile, but at most 32
  KeepInL2 keep;           ///< whether the loaded lines stay in the L2
};

//| A cache of e4m3 also has scales. They come last, so that everything else stays where step 4 expects it.
/// Scale (batch, head, group) of K and of V. A group is a page of keys, or 2^group_bits consecutive keys of a
/// sequence.
struct ScaledCache : Cache {
  const float *k_scale, *v_scale;  ///< null: all are 1
  int to_batch, to_head, to_group;
  int group_bits;
};

template <typename Traits>
using CacheOf = std::conditional_t<Traits::kElementBytes == 1, ScaledCache, Cache>;

/// A launch's buffers apart from queries and cache.
struct Workspace {
  Partials partials;   ///< [2 * blocks * kRows] places: see place_of
  unsigned* arrivals;  ///< [kMaxRingBlocks, kMaxRingWarps], 0 before the first launch and after each
  Partials whole;      ///< destination of finished rows in float32, by number; null: O
};

constexpr int kMaxRingBlocks = 1024, kMaxRingWarps = 8;

}  // namespace flashbook::decoding
