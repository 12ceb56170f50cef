//| # Step 5: functions
//|
//| Steps 1 to 4 each know one kind of mask. A library cannot know what its users will think of next. So this step takes two
//| *functions*, as FlexAttention does (arXiv 2412.05496): one says which pairs are visible, the other changes a score. They
//| are types, template parameters, and the compiler inlines them. They run on both machines as they are.
//|
//| **Curried.** FlexAttention's `mask_mod(b, h, q, k)` takes all four indices at once. Here `row(b, h, q)` gives a value that
//| takes the last one, `sees(k)`. A thread owns two rows, and what depends on the row, such as the search for its document,
//| is done once and not for each of 64 keys.
//|
//| ![Tiles of a causal window: most are skipped, some are full, and those at the edges are partial](../../docs/figures/tile_classes.svg)
#pragma once
#include "chapters/09_masks/ranges.cuh"
#include "common/ptx/math.h"

namespace flashbook::masks {

//| ## Masks
//|
//| | member | what it says |
//| | --- | --- |
//| | `row(batch, head, query)` | a value with `sees(key)`, and `from(key)` to count keys from there |
//| | `kByHead` | whether heads and batch entries have masks of their own |
/// A mask by window, prefix and documents.
struct RangeMask {
  static constexpr bool kByHead = false;
  Sequence sequence;  ///< with as many rows as there are
  Ranges ranges;

  __device__ KeyRanges row(int, int, int query) const { return ranges.row(sequence, query); }
};

/// Blocks that are listed: a mask that no formula knows. Others restrict besides.
struct BlockMask {
  static constexpr bool kByHead = false;
  RangeMask other;
  const int* first;       // [rows of blocks + 1]
  const int* key_blocks;  // ascending in a row
  device::Divisor queries_of_block, keys_of_block;

  struct Row {
    KeyRanges ranges;
    const int *begin, *end;  // the row's blocks
    device::Divisor keys_of_block;
    int first = 0;  ///< which key is number 0

    __device__ Row from(int key) const { return {ranges.from(key), begin, end, keys_of_block, first + key}; }

    __device__ bool sees(int key) const {
      if (!ranges.sees(key)) return false;
      const int block = (first + key) / keys_of_block;
      const int *low = begin, *high = end;
      while (low < high) {
        const int* const middle = low + (high - low) / 2;
        if (*middle < block)
          low = middle + 1;
        else
          high = middle;
      }
      return low < end && *low == block;
    }
  };
  __device__ Row row(int batch, int head, int query) const {
    const int at = query / queries_of_block;
    return {other.row(batch, head, query), key_blocks + first[at], key_blocks + first[at + 1], keys_of_block};
  }
};

//| ## Which tiles
//|
//| A function cannot be asked about a tile. So a kernel that goes before asks it about every pair, once for all heads if
//| they share the mask: 67 million questions for 8192 tokens, some microseconds. It leaves a byte for each pair of tiles, and
//| the producer reads 32 of them at a time. FlexAttention makes such a `BlockMask` beforehand, in PyTorch, and keeps it.

constexpr int kClassifyThreads = 128;

/// Writes the class of tiles of kRows queries by kKeys keys. Grid: (tiles of keys, four a block; tiles of
/// queries; masks). Each warp has a tile; its lanes have rows.
template <int kRows, int kKeys, typename Mask>
__global__ void __launch_bounds__(kClassifyThreads)
    classify_tiles(Mask mask, Problem problem, int key_tiles,
                   TileClass* classes) {  // [masks, query tiles, key tiles]
  const int tile = (blockIdx.x * kClassifyThreads + threadIdx.x) / 32;
  if (tile >= key_tiles) return;
  const int first_query = blockIdx.y * kRows, first_key = tile * kKeys;
  const int end = min(first_query + kRows, problem.seqlen_q),
            end_key = min(first_key + kKeys, problem.seqlen_k);
  bool any = false, all = end_key == first_key + kKeys;
  for (int query = first_query + threadIdx.x % 32; query < end; query += 32) {
    const auto row = mask.row(blockIdx.z / problem.heads, blockIdx.z % problem.heads, query);
    for (int key = first_key; key < end_key; ++key) {
      const bool is_seen = row.sees(key);
      any |= is_seen;
      all &= is_seen;
    }
  }
  any = __any_sync(kWholeWarp, any);
  all = __all_sync(kWholeWarp, all);
  if (threadIdx.x % 32 == 0)
    classes[(int64_t(blockIdx.z) * gridDim.y + blockIdx.y) * key_tiles + tile] = !any  ? TileClass::skip
                                                                                 : all ? TileClass::full
                                                                                       : TileClass::partial;
}

/// The tiles of keys for a tile of queries.
struct ListedTiles {
  const TileClass* classes;  // [tiles of keys]
  Span span;
  int tile_keys;

  __device__ TileClass classify(int first_key) const { return classes[first_key / tile_keys]; }
};

//| ## Scores
//|
//| | member | what it says |
//| | --- | --- |
//| | `row(work, query)` | a value that takes a score and its key, and gives another |
//| | `scale_log2` | what the softmax multiplies it by, in place of scale * log2(e) |
//| | `left_out` | a constant that was left out of all scores, which only the log-sum-exp knows |
//| | `kAsksForKeys` | whether it asks for the key; then full tiles need to know theirs |
//|
//| ### Softcap
//|
//| c * tanh(s / c) keeps scores below c. `tanh.approx` is one instruction, but its 11 bits are too few for f16. The definition
//| needs two of the special function unit's: tanh(x) = 1 - 2 / (1 + e^(2x)). The 1 is the same for all scores, and softmax
//| does not see constants: so what is left is -1 / (1 + 2^(f s)), and the factor 2c goes where the softmax multiplies anyway.
/// c * tanh(s / c), but for the constant c.
struct Softcap {
  static constexpr bool kChanges = true;
  static constexpr bool kAsksForKeys = false;
  float factor;      ///< 2 * log2(e) * scale / c
  float scale_log2;  ///< 2 * c * log2(e)
  float left_out;    ///< c

  __device__ Softcap row(const Work&, int) const { return *this; }
  __device__ float operator()(float score, int) const {
    return -__fdividef(1.0f, 1.0f + exp2_approx(score * factor));
  }
};

//| ### ALiBi
//|
//| A penalty for distance, with a slope for each head. The slope is divided by the scale, so that the product needs no other
//| factor.
/// Takes slope * |own key - key| from a score.
struct Alibi {
  static constexpr bool kChanges = true;
  static constexpr bool kAsksForKeys = true;
  const float* slopes;  // [heads]
  Ranges ranges;        ///< whose documents it counts in
  float scale_log2;     ///< as without it
  float per_scale;      ///< 1 / scale
  float left_out = 0;

  struct Row {
    float slope;
    int own;
    __device__ float operator()(float score, int key) const {
      return score - slope * fabsf(float(own - key));
    }
  };
  __device__ Row row(const Work& work, int query) const {
    Sequence s = work.sequence;
    if (ranges.documents.count > 0) s = ranges.documents.at(ranges.documents.find(query));
    return {slopes[work.head.head] * per_scale, s.first_key + query - s.first_query + s.keys - s.queries};
  }
};

//| ## The policy
/// Step 5.
template <typename Mask, typename Score>
struct ByFunctions : InBatch {
  Mask mask;
  const TileClass* classes;  // [masks, query tiles, key tiles]
  int query_tiles, key_tiles;
  int tile_rows;  ///< queries of a tile
  Score score;

  template <int kKeys>
  __device__ ListedTiles tiles(const Work& work, int) const {
    const int number = Mask::kByHead ? work.head.batch * int(order.heads) + work.head.head : 0;
    return {classes + (int64_t(number) * query_tiles + work.first_query / tile_rows) * key_tiles,
            {0, 0, key_tiles},
            kKeys};
  }
  __device__ auto row(const Work& work, int query) const {
    return mask.row(work.head.batch, work.head.head, query);
  }
};

}  // namespace flashbook::masks
