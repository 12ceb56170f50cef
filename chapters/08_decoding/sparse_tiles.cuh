//| # Sparse latent attention: what both steps share
//|
//| DeepSeek-V3.2 lets each query token attend to 2048 keys, which a cheap *indexer* has chosen from all
//| earlier ones. Keys are latents, as in [step 7](step7_latent.cuh): 576 elements, of which the first 512 are
//| also the value. The kernel receives a list of keys for each token.
//|
//| A token's 128 heads have the same list, and 64 of them are the rows of a tile. No two tokens share a tile
//| of keys, so each *token* takes the place of a sequence in the plan. A list is short and its length is
//| known, so the host computes the plan (`EvenPlan`).
#pragma once
#include "chapters/08_decoding/step7_latent_merge.cuh"
#include "common/ptx/cp_async.h"
#include "common/ptx/fence.h"

namespace flashbook::decoding {

/// The sizes of the kernels.
struct SparseTraits {
  static constexpr int kRows = 64;            ///< heads per tile of queries
  static constexpr int kKeys = 64;            ///< keys per tile
  static constexpr int kRoundKeys = 128;      ///< keys per round: two tiles, the unit of the plan
  static constexpr int kConsumers = 256;      ///< threads of the two warpgroups that multiply
  static constexpr int kThreads = 256 + 128;  ///< with the producers
};

/// The problem of a launch. `batch` counts tokens, each of which is a sequence with one query.
struct SparseProblem : Problem {
  device::Divisor tokens;  ///< tokens per batch entry

  /// Returns the offset in elements of a head of a token, row `row` of the tile, in Q or O.
  __device__ int64_t offset(const Strides& strides, const Pack& of, int row) const {
    return of.batch / tokens * strides.batch + of.batch % tokens * strides.row + row * strides.head;
  }
  __device__ int64_t number(const Pack& of, int row) const { return offset(number_strides, of, row); }
};

/// The keys and the lists.
struct SparseCache {
  const uint4* keys;          ///< in pieces of 16 bytes
  const int* lists;           ///< [tokens, count]
  int count;                  ///< entries per list
  int seqlen_k;               ///< keys per sequence
  const int* table;           ///< [batch, pages_of_sequence], or null
  device::Divisor page_rows;  ///< keys per page
  int pages_of_sequence;
  int batch_pieces, row_pieces;  ///< distances between batch entries, or pages, and between keys
};

//| An entry of a list becomes the place of a key in memory. The last round of a list may have fewer entries.
//| Entries without a key, -1, and keys that do not exist have no place, so no list can make the kernel read
//| elsewhere.
/// Returns entry `entry` of a round of a token's list, or -1 after the list's end.
__device__ __forceinline__ int listed_key(const SparseCache& cache, const EvenPlan& plan, int unit,
                                          int entry) {
  entry += unit % plan.units_per_item * SparseTraits::kRoundKeys;
  if (unit >= plan.units || entry >= cache.count) return -1;
  return cache.lists[int64_t(unit / plan.units_per_item) * cache.count + entry];
}

/// Returns the pieces before a key of a token's list; -1 if there is no such key.
__device__ __forceinline__ int place_of(const SparseCache& cache, const SparseProblem& problem,
                                        const EvenPlan& plan, int unit, int key) {
  if (unsigned(key) >= unsigned(cache.seqlen_k)) return -1;
  const int batch = unit / plan.units_per_item / problem.tokens;
  if (cache.table == nullptr) return batch * cache.batch_pieces + key * cache.row_pieces;
  const int page = cache.table[batch * cache.pages_of_sequence + key / cache.page_rows];
  return page * cache.batch_pieces + key % cache.page_rows * cache.row_pieces;
}

//| ## Shared memory
//|
//| Two tiles of 64 keys are all that fits: Q and two tiles take 216 of the 227 KB. The two warpgroups that
//| multiply have half of O's columns each, as in step 7, and *both* compute scores, each of one tile.
//|
//| A tile is loaded, read and released in two *halves*: the columns of the left half of the values, and those
//| of the right half with the position.

using SparseTile = LatentTile<__nv_bfloat16>;

/// Shared memory of a block.
struct SparseShared {
  SparseTile keys[2];
  SparseTile queries;
  Tile<__nv_bfloat16, SparseTraits::kRows, kPanel> p;  ///< P of the second tile
  uint64_t full[2][2];                                 ///< a half of a tile has landed: [tile][half]
  uint64_t empty[2][2];                                ///< it has been read
  uint16_t exist[2][4];                                ///< which keys of a tile exist: row_of_bit
  float max[SparseTraits::kRows];                      ///< maxima that the warpgroups pass to each other
  float sum[2][SparseTraits::kRows];                   ///< sums of the probabilities of each warpgroup
  Segment with_others[2];                              ///< the block's parts of items that it shares
  Segment segment;
  PlaceInPlan place;
};
static_assert(sizeof(SparseShared) <= kMaxSharedBytes, "more shared memory than a block may have");

//| **Who reads a half last?** In both tiles, the left warpgroup reads the left half last, and the right one
//| the right half. So each `empty` has one arrival from each of the four warps of one warpgroup.

//| **Which keys exist.** Lane $q$ of a quad has the scores of columns $2q$ and $2q + 1$ of every eight. So
//| each of four words has the bits of the keys in two such columns, and a lane needs only its own word.
/// Returns the key of a tile to which a bit of a word of SparseShared::exist belongs.
__device__ __forceinline__ int row_of_bit(int word, int bit) { return bit / 2 * 8 + 2 * word + bit % 2; }

/// Returns the entry of a round that a lane of a producer warp looks up. The warp has 16 keys of each tile:
/// lanes 0 to 15 know those of the first tile, the others those of the second.
__device__ __forceinline__ int entry_of_lane(int warp) {
  const int lane = threadIdx.x % 32;
  return lane / 16 * SparseTraits::kKeys + row_of_bit(warp, lane % 16);
}

/// Initialises the barriers. One thread. `left`, `right`: arrivals at `full` of each half.
__device__ __forceinline__ void initialise(SparseShared& shared, int left, int right) {
  for (int i = 0; i < 4; ++i) {
    mbarrier_init(&shared.full[i / 2][i % 2], i % 2 == 0 ? left : right);
    name_mbarrier(&shared.full[i / 2][i % 2], "full", i);
    mbarrier_init(&shared.empty[i / 2][i % 2], 4);
    name_mbarrier(&shared.empty[i / 2][i % 2], "empty", i);
  }
}

/// Named barriers of the two warpgroups that multiply, after those of step 7: see step 11.
enum SparseBarrier { kFirstP = kQueries + 1, kSecondP };

}  // namespace flashbook::decoding
