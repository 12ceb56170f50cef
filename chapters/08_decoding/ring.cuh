//| # Steps 4 to 6: a deep ring, narrow tiles, and the last to arrive merges
//|
//| **What step 3 leaves.** A block waits for a tile, works on it, and only then asks for the next. While it works nothing
//| travels, and the second block of the multiprocessor covers only a part of that. To read at full rate, memory must have
//| requests at all times: about a microsecond's worth, 36 KB a multiprocessor, and in practice several times that.
//|
//| **What this step does.** The whole shared memory is a ring of stages of 32 KB, seven of them, and a producer warp that
//| does nothing but ask for the next tile as soon as a stage is free. So up to 224 KB are on their way. The rest follows
//| from leaving them all that space and all that time:
//|
//| * **Narrow tiles.** A group of 4 or 8 heads fills a few of `wgmma`'s 64 rows. `mma.sync` multiplies 16 rows, whose
//|   operands go through registers; chapter 5 turned away from it because it cannot keep up with the tensor cores. Here
//|   memory is what must be kept up with, and it is twenty times slower.
//| * **Warps that own keys.** A tile's keys are dealt out to the warps, 16 at a time. Each has its own maximum, sum and
//|   output, so that between two tiles no warp waits for another. They merge when the block is done with an item.
//| * **No second kernel.** Whoever arrives last, by an atomic counter, merges the parts: see `finish_parts` below.
//|
//| **Budget** (d = 128): a ring of 7 x 32 KB, and 2 KB of barriers and sums. Registers of a consumer: Q 32, O 64, scores 8.
//|
//| ![A producer warp keeps seven stages of 32 KB filled; eight consumer warps each take 16 keys of a tile and merge at the end](../../docs/figures/decode_ring.svg)
#pragma once
#include "chapters/08_decoding/merge.cuh"
#include "chapters/08_decoding/plan.cuh"
#include "chapters/08_decoding/softmax.cuh"
#include "common/hopper/pipeline.h"
#include "common/ptx/barrier.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/fence.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"

namespace flashbook::decoding {

using hopper::PipelineState;

constexpr int kStageBytes = 32 * 1024;
constexpr int kRowsOfMma = 16;  ///< rows of a tile of mma.sync, and keys that a warp takes at a time
constexpr int kPieces = 8;      ///< of a tile: see "How a tile lies"
constexpr int kPieceBytes = kStageBytes / kPieces;
constexpr int kPieceStride = kPieceBytes + 16;
constexpr int kRowsOfPiece = kRowsOfMma / kPieces;  ///< that a chunk has of each

//| ## A configuration
//|
//| 16, 32 or 64 rows of queries; the warps that are not needed for more rows share the tile's keys.

template <int kHeadDim_, int kRowTiles_>
struct RingConfig {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kRowTiles = kRowTiles_;              ///< of 16 rows: 1; up to d = 128 also 2 and 4
  static constexpr int kRows = kRowTiles * kRowsOfMma;      ///< of a tile of queries
  static constexpr int kKeys = kStageBytes / 2 / kHeadDim;  ///< of a tile of K or V: 256, 128, 64
  static constexpr int kRowBytes = kHeadDim * 2;
  static constexpr int kPieceKeys = kKeys / kPieces;  ///< 32, 16, 8
  /// At d = 256 a thread has 128 sums and 64 registers of Q: only five warps may have that many.
  static constexpr int kWarps = kHeadDim == 256 ? 4 : 8;
  static constexpr int kKeyWarps = kWarps / kRowTiles;            ///< that share a tile's keys
  static constexpr int kChunks = kKeys / kRowsOfMma / kKeyWarps;  ///< of 16 keys, that a warp has of a tile
  /// Chunks whose scores a thread holds at a time: what registers are left for.
  static constexpr int kChunksAtOnce = kHeadDim < 256 && kRowTiles == 1 && kChunks > 1 ? 2 : 1;
  static constexpr int kConsumers = kWarps * 32;    ///< threads
  static constexpr int kThreads = kConsumers + 32;  ///< and the producer warp
  static constexpr int kStages = 7;
  /// A warp's sums, in float32, when warps merge: they fill whole stages of the ring.
  static constexpr int kWarpSumBytes = kRowsOfMma * kHeadDim * 4;
  static constexpr int kMergeStages = kWarps * kWarpSumBytes / kStageBytes;
  static_assert(kChunks >= 1 && kMergeStages <= kStages,
                "a tile has keys for every warp, and sums fit the ring");
};

//| A stage is 32 KB of keys or of values, whatever their columns: 256 keys at $d = 64$, 128 at 128, 64 at 256. Nothing is swizzled, so
//| it may begin at any multiple of 16 bytes.
struct alignas(16) Stage {
  unsigned char byte[kPieces * kPieceStride];
};

/// Shared memory of a block.
template <typename Config>
struct RingShared {
  hopper::Pipeline<Stage, Config::kStages> ring;
  float max[Config::kWarps][kRowsOfMma];  ///< of a warp's rows, times scale_log2
  float sum[Config::kWarps][kRowsOfMma];
  int is_last;  ///< whether this block arrived last
                // What each warp works on, and where it goes on: in registers they would crowd out sums.
  Segment segment[Config::kWarps];
  typename Segments<Config::kKeys>::Place place[Config::kWarps];
};

enum RingBarrier { kWholeBlock, kAllConsumers };  ///< named barriers

//| ## What a launch is given
//|
//| A cache of one piece a sequence is a cache of pages that are as long as a sequence, and has no table. So one kernel does both.
/// Where keys and values lie: pages of `page_rows` keys, of which a sequence has `pages_of_sequence` in its
/// table. Without a table a sequence is one page.
struct Cache {
  const unsigned char *k, *v;    ///< [pages, kv_heads, page_rows, head_dim]
  Strides k_strides, v_strides;  ///< in bytes; `batch` is from page to page
  const int* table;              ///< [batch, pages_of_sequence], or null
  int page_rows;
  int pages_of_sequence;
  int copy_rows;  ///< keys that one copy brings: at most a page, at most a piece
};

/// What a launch works with beside queries and cache.
struct Workspace {
  Partials partials;   ///< [2 * blocks * kRows] places: see place_of
  unsigned* arrivals;  ///< [kMergeLevels, kMostRingBlocks], 0 before the first launch and after each
};

constexpr int kMostRingBlocks = 1024;
constexpr int kMergeLevels = 4;

/// How many parts one block merges of `count` that there are: all, or of many a square root.
__device__ __forceinline__ int merge_width(int count) { return count <= 32 ? 32 : 12; }

//| ## How a tile lies
//|
//| Chapter 5's tensor copies swizzle a tile on its way, 128 bytes of a row at a time, so that no two rows of a column meet in
//| the same banks. That has a price when nothing but reading counts: 4.1 TB/s, while plain bulk copies, which take bytes
//| as they lie, reach 4.5. So tiles come by plain copies, whose rows lie 256 bytes apart (d = 128), and eight rows of a
//| column would meet in the same banks.
//|
//| Attention does not mind the order of keys. So a tile is copied in eight *pieces* of 4 KB, each 16 bytes further than a
//| multiple of 4 KB, and the eight keys of a small matrix are one from each piece: eight rows in eight different groups of
//| banks. Chunk m of a tile has rows 2 m and 2 m + 1 of every piece, 16 keys. Column c of its scores is row 2 m + c / 8 of
//| piece c % 8.
//|
//| ![Eight rows one after another begin in the same banks; one row of each of eight shifted pieces begin in eight different groups of banks](../../docs/figures/decode_pieces.svg)

/// The key of column `column` (0 to 15) of a chunk, counted from the tile's first.
template <typename Config>
__device__ __forceinline__ int key_in_tile(int chunk, int column) {
  return column % kPieces * Config::kPieceKeys + kRowsOfPiece * chunk + column / kPieces;
}

/// Where that key's row begins in a stage.
template <typename Config>
__device__ __forceinline__ const unsigned char* row_in_stage(const Stage& stage, int chunk, int column) {
  return stage.byte + column % kPieces * kPieceStride +
         (kRowsOfPiece * chunk + column / kPieces) * Config::kRowBytes;
}

//| ## The producer
//|
//| One warp, and two stages a tile: keys and values have one each, so that a stage of keys is free again as soon as the scores
//| are made. A copy brings at most a piece, and not beyond the sequence's end. Lanes ask for a copy each.
//|
//| **Pages.** A page has 16 keys or more, so at d = 128 a piece never crosses one: with pages the copies are the same, only
//| their addresses come from the table. Lanes look up a page each, one tile ahead: the table's answer takes as long as a
//| key's.
//|
//| Keys whose rows do not lie side by side (`[batch, seqlen, heads, head_dim]`) come row by row.

template <typename Config>
__device__ __forceinline__ void produce(RingShared<Config>& shared, const Cache& cache,
                                        const Problem& problem, const Plan& plan,
                                        Segments<Config::kKeys>& segments) {
  const int lane = threadIdx.x % 32, copies = Config::kKeys / cache.copy_rows;
  PipelineState<Config::kStages> state;
  Segment segment;
  while (segments.next(segment)) {
    const Pack of = problem.pack_of(segment.pack);
    /// The page that has a key, if there is such a key.
    const auto page_of = [&](int key) {
      if (cache.table == nullptr) return of.batch;
      return key < segment.length ? cache.table[of.batch * cache.pages_of_sequence + key / cache.page_rows]
                                  : 0;
    };
    //| A lane asks the table for its own copy's page, and remembers the answer for the tile after.
    int page = page_of(plan.first_key + segment.begin * Config::kKeys + lane * cache.copy_rows);
    for (int tile = segment.begin; tile < segment.end; ++tile) {
      const int first_key = plan.first_key + tile * Config::kKeys;
      const int bytes = min(Config::kKeys, segment.length - first_key) * Config::kRowBytes;
      const int next_page = page_of(first_key + Config::kKeys + lane * cache.copy_rows);
#pragma unroll
      for (int tensor = 0; tensor < 2; ++tensor) {  // K, then V
        hopper::wait_empty(shared.ring, state);
        uint64_t* full = &shared.ring.full[state.stage];
        if (lane == 0) mbarrier_arrive_expect_tx(full, bytes);
        __syncwarp();  // the barrier knows of the bytes before any can land
        //| `arrive_expect_tx` has named the bytes of the whole tile. The copies land in any order, and the stage is full when the last of
        //| them has.
        const Strides& strides = tensor == 0 ? cache.k_strides : cache.v_strides;
        const unsigned char* head = (tensor == 0 ? cache.k : cache.v) + of.kv_head * strides.head;
        for (int copy = lane; copy < copies; copy += 32) {
          const int in_tile = copy * cache.copy_rows, key = first_key + in_tile;
          const int rows = min(cache.copy_rows, segment.length - key);
          if (rows <= 0) break;
          const int in_page = cache.table == nullptr ? key : key % cache.page_rows;
          bulk_load(shared.ring.tile[state.stage].byte + in_tile / Config::kPieceKeys * kPieceStride +
                        in_tile % Config::kPieceKeys * Config::kRowBytes,
                    head + (copy == lane ? page : page_of(key)) * strides.batch + in_page * strides.row,
                    rows * Config::kRowBytes, full);
        }
        __syncwarp();
        state.advance();
      }
      page = next_page;
    }
    //| At the end of a segment the warps need room to merge. The ring has it: the producer hands out stages without filling
    //| them, in their turn like any other.
    for (int i = 0; i < Config::kMergeStages; ++i) {
      hopper::wait_empty(shared.ring, state);
      if (lane == 0) mbarrier_arrive(&shared.ring.full[state.stage]);
      state.advance();
    }
  }
}

//| ## A warp's products
//|
//| `ldmatrix` takes eight rows of 16 bytes a matrix, at addresses that lanes give, so rows may come from eight pieces.

/// A warp's 16 rows of Q, as mma.sync takes them.
template <typename Config>
using Queries = uint32_t[Config::kHeadDim / 16][4];

//| A row of K is contiguous along the summed dimension, so `ldmatrix` brings K as `mma.sync` wants its second operand; V needs the
//| transposing form.
/// scores = Q K^T for the 16 keys of a chunk.
template <typename T, typename Config>
__device__ __forceinline__ void multiply_keys(float* scores, const Queries<Config>& q, const Stage& keys,
                                              int chunk) {
  const int lane = threadIdx.x % 32;
  // Lanes 0-7 and 8-15 point at columns 0-7, the second at 8 dimensions more; lanes 16-31 at columns 8-15.
  const unsigned char* row = row_in_stage<Config>(keys, chunk, lane % 8 + lane / 16 * 8) + lane / 8 % 2 * 16;
  float sums[2][4] = {};  // columns 0-7, columns 8-15
#pragma unroll
  for (int step = 0; step < Config::kHeadDim / 16; ++step) {
    uint32_t k[4];
    ldmatrix_x4(k, row + step * 32);
    mma_m16n8k16<T>(sums[0], q[step], k[0], k[1], sums[0]);
    mma_m16n8k16<T>(sums[1], q[step], k[2], k[3], sums[1]);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) scores[i] = sums[i / 4][i % 4];
}

/// Which column of a chunk score i of a thread belongs to.
__device__ __forceinline__ int column_of(int i) { return i / 4 * 8 + 2 * int(threadIdx.x % 4) + i % 2; }

//| A warp's scores are registers in the order in which `mma.sync` gives them, which is the order in which it takes P, as in chapter 4.
//| V's rows are the same keys in the same order, so no score has to move.
/// output += P V for the 16 keys of a chunk, of which those below `keys` of the tile exist.
template <typename T, typename Config>
__device__ __forceinline__ void multiply_values(float (&output)[Config::kHeadDim / 2], const float* p,
                                                const Stage& values, int chunk, int keys) {
  const int lane = threadIdx.x % 32;
  const uint32_t a[4] = {pack<T>(p[0], p[1]), pack<T>(p[2], p[3]), pack<T>(p[4], p[5]), pack<T>(p[6], p[7])};
  // A register has two keys of a dimension, those of the thread's scores 0 and 1, or 4 and 5.
  const bool whole = key_in_tile<Config>(chunk, 15) < keys;
  const unsigned char* row = row_in_stage<Config>(values, chunk, lane % 16) + lane / 16 * 16;
#pragma unroll
  for (int column = 0; column < Config::kHeadDim; column += 16) {
    uint32_t v[4];
    ldmatrix_x4_trans(v, row + column * 2);
    //| What lies behind the last key may be NaN, and 0 times NaN is NaN: it is cut off in the registers. Only the last
    //| tile of a sequence pays for it.
    if (!whole) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        v[i] &= (key_in_tile<Config>(chunk, column_of(4 * (i % 2))) < keys ? 0x0000ffffu : 0) |
                (key_in_tile<Config>(chunk, column_of(4 * (i % 2) + 1)) < keys ? 0xffff0000u : 0);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float(&sums)[4] = *reinterpret_cast<float(*)[4]>(&output[column / 2 + 4 * n]);
      mma_m16n8k16<T>(sums, a, v[2 * n], v[2 * n + 1], sums);
    }
  }
}

//| Q comes straight from memory into the registers, in the order that `mma.sync` wants: each lane loads two columns of two
//| rows at a time. It is read once a segment, while the first tile of keys travels.
template <typename T, typename Config>
__device__ __forceinline__ void load_queries(Queries<Config>& fragments, const T* q, const Problem& problem,
                                             const Pack& of, int first_row) {
  const int lane = threadIdx.x % 32, column = lane % 4 * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    const bool exists = row < problem.rows();
    const T* from = q + (exists ? problem.offset(problem.q_strides, of, row) : 0) + column;
#pragma unroll
    for (int step = 0; step < Config::kHeadDim / 16; ++step)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        fragments[step][r + 2 * half] =
            exists ? *reinterpret_cast<const uint32_t*>(from + step * 16 + half * 8) : 0;
  }
}

//| ## A segment's tiles
//|
//| Scores of all the warp's chunks, then the stage of keys is free; softmax; then the values. A chunk behind the last key is
//| left out, since nothing may have been brought there.

/// What a warp's keys came to.
template <typename Config>
struct WarpSums {
  float output[Config::kHeadDim / 2];
  Rows rows;
};

/// The first of the thread's two rows of the pack; the other is 8 further.
template <typename Config>
__device__ __forceinline__ int row_of_pack(const Segment& segment) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  return segment.row_tile * Config::kRows + warp / Config::kKeyWarps * kRowsOfMma + lane / 4;
}

template <typename T, typename Config>
__device__ __forceinline__ WarpSums<Config> attend(RingShared<Config>& shared,
                                                   PipelineState<Config::kStages>& state,
                                                   const Queries<Config>& q, const Problem& problem,
                                                   const Segment& segment, int first_key, int key_warp) {
  //| A warp takes one or two chunks at a time: as many scores as its registers hold beside Q and the output.
  constexpr int kAtOnce = Config::kChunksAtOnce;
  WarpSums<Config> sums = {{}, Rows::none()};
  for (int tile = segment.begin; tile < segment.end; ++tile) {
    const int tile_key = first_key + tile * Config::kKeys, keys_left = segment.length - tile_key;
    const PipelineState<Config::kStages> keys = state;
    state.advance();
#pragma unroll 1  // unrolled, it would want more registers than there are
    for (int first = 0; first < Config::kChunks; first += kAtOnce) {
      float scores[8 * kAtOnce];
      if (first == 0) hopper::wait_full(shared.ring, keys);  // K is in
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) {
        const int chunk = (first + c) * Config::kKeyWarps + key_warp;
        float* own = scores + 8 * c;
        if (key_in_tile<Config>(chunk, 0) < keys_left)
          multiply_keys<T, Config>(own, q, shared.ring.tile[keys.stage], chunk);
        //| Only chunks with keys behind the last one, or under a causal mask, ask key by key who sees it.
        if (key_in_tile<Config>(chunk, 15) >= keys_left || problem.causal) {
#pragma unroll
          for (int i = 0; i < 8; ++i)
            if (tile_key + key_in_tile<Config>(chunk, column_of(i)) >
                problem.last_key(segment.length, row_of_pack<Config>(segment) + 8 * row_of(i)))
              own[i] = -INFINITY;
        }
      }
      if (first + kAtOnce == Config::kChunks) {
        __syncwarp();                        // all lanes have read their part of K,
        hopper::release(shared.ring, keys);  // so it may be overwritten
      }

      //| Most tiles leave the maximum as it is, and then no output is multiplied: the warp votes on it.
      float correction[2];
      softmax(scores, sums.rows, correction, problem.scale_log2);
      if (__any_sync(kWholeWarp, correction[0] != 1 || correction[1] != 1))
        rescale_rows(sums.output, correction);

      if (first == 0) hopper::wait_full(shared.ring, state);  // V is in
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) {
        const int chunk = (first + c) * Config::kKeyWarps + key_warp;
        if (key_in_tile<Config>(chunk, 0) < keys_left)
          multiply_values<T, Config>(sums.output, scores + 8 * c, shared.ring.tile[state.stage], chunk,
                                     keys_left);
      }
    }
    __syncwarp();  // the same of V
    hopper::release(shared.ring, state);
    state.advance();
  }
  return sums;
}

//| ## The block's warps merge
//|
//| Every warp of a tile of rows has its own maximum. The largest of them is found through shared memory, each warp brings its
//| sums to it and lays them into the stages that the producer has handed out, and then all threads add up.
//|
//| Where a column lies in a row of sums depends on the row: eight rows of the same column, which eight groups of lanes hold,
//| would meet in the same banks.

/// Where four columns of a warp's row of sums lie.
template <typename Config>
__device__ __forceinline__ float* sums_at(RingShared<Config>& shared,
                                          const PipelineState<Config::kStages>& first, int warp, int row,
                                          int column) {
  const int byte = warp * Config::kWarpSumBytes;
  int stage = first.stage + byte / kStageBytes;
  if (stage >= Config::kStages) stage -= Config::kStages;
  auto* sums = reinterpret_cast<float*>(shared.ring.tile[stage].byte + byte % kStageBytes);
  return sums + row * Config::kHeadDim + (column ^ row % 8 * 8);
}

//| A place in the workspace belongs to a block. With equal work a block may hold the last part of one item and the first of another,
//| so it has two.
/// Where row `row` of a block's part lies in the workspace. A block has at most two parts of items that other
/// blocks share: the end of one that began before, and the beginning of one that goes on.
template <typename Config>
__device__ __forceinline__ int64_t place_of(const Segment& segment, int part, int row) {
  return (2 * int64_t(segment.first_block + part) + (part == 0)) * Config::kRows + row;
}

/// Merges the consumer warps' sums and stores the result, or the block's part of it. All consumers.
template <typename T, typename Config>
__device__ __forceinline__ void finish_block(RingShared<Config>& shared,
                                             PipelineState<Config::kStages>& state,
                                             const WarpSums<Config>& own, const Problem& problem,
                                             const Segment& segment, const Partials& partials, T* o,
                                             float* lse) {
  constexpr float kLn2 = 0.6931471805599453f;
  constexpr int kKeyWarps = Config::kKeyWarps;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_warp = warp / kKeyWarps * kKeyWarps;  // of the same rows
  const int first_row = segment.row_tile * Config::kRows;
  const int rows = min(problem.rows() - first_row, Config::kRows);
  named_barrier_sync<kAllConsumers, Config::kConsumers>();  // all have read what the segment before left
  //| First every warp says what its maxima and sums are.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(own.rows.sum[r]);
    if (lane % 4 != 0) continue;
    shared.max[warp][lane / 4 + 8 * r] = own.rows.max[r] * problem.scale_log2;
    shared.sum[warp][lane / 4 + 8 * r] = sum;
  }
  named_barrier_sync<kAllConsumers, Config::kConsumers>();  // maxima and sums of all warps are there

  /// The largest maximum of a row, the first of whose warps is `from`.
  const auto largest = [&](int from, int row) {
    float max = shared.max[from][row];
    for (int w = 1; w < kKeyWarps; ++w) max = fmaxf(max, shared.max[from + w][row]);
    return max;
  };
  /// 2^(max of a warp - largest), 0 of a warp that saw no key.
  const auto factor = [&](int w, int row, float max) {
    return shared.max[w][row] == -INFINITY ? 0 : exp2_approx(shared.max[w][row] - max);
  };

  //| Then each brings its output to the largest maximum and lays it down. The stages are the ring's own, handed out by the producer.
  const PipelineState<Config::kStages> first = state;
  PipelineState<Config::kStages> waited = state;
  for (int i = 0; i < Config::kMergeStages; ++i) {
    hopper::wait_full(shared.ring, waited);  // the stage is ours
    waited.advance();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
    if (warp / kKeyWarps * kRowsOfMma + row >= rows) continue;
    const float scale = factor(warp, row, largest(first_warp, row));
#pragma unroll
    for (int i = 0; i < Config::kHeadDim / 8; ++i)
      *reinterpret_cast<float2*>(sums_at(shared, first, warp, row, 8 * i) + lane % 4 * 2) =
          make_float2(own.output[4 * i + 2 * r] * scale, own.output[4 * i + 2 * r + 1] * scale);
  }
  named_barrier_sync<kAllConsumers, Config::kConsumers>();  // all sums are there

  //| All consumers add up, four columns a thread. A row of an item that other blocks share is stored as a part, any other is the result.
  constexpr int kPieces = Config::kHeadDim / 4;  // of four columns, that a thread adds up
  const Pack of = problem.pack_of(segment.pack);
  for (int i = threadIdx.x; i < rows * kPieces; i += Config::kConsumers) {
    const int tile_row = i / kPieces, column = i % kPieces * 4;
    const int from = tile_row / kRowsOfMma * kKeyWarps, row = tile_row % kRowsOfMma;
    const float max = largest(from, row);
    float4 total = make_float4(0, 0, 0, 0);
    float weights = 0;
    for (int w = 0; w < kKeyWarps; ++w) {
      const auto sums = *reinterpret_cast<const float4*>(sums_at(shared, first, from + w, row, column));
      total.x += sums.x, total.y += sums.y, total.z += sums.z, total.w += sums.w;
      weights += shared.sum[from + w][row] * factor(from + w, row, max);
    }
    const float inverse = weights > 0 ? 1 / weights : 0;
    const float row_lse = weights > 0 ? (max + __log2f(weights)) * kLn2 : -INFINITY;
    total.x *= inverse, total.y *= inverse, total.z *= inverse, total.w *= inverse;
    //| What is stored is normalised, in both cases, with its log-sum-exp beside it: parts of any size merge alike.
    if (segment.parts > 1) {
      const int64_t place = place_of<Config>(segment, segment.part, tile_row);
      *reinterpret_cast<float4*>(partials.o + place * Config::kHeadDim + column) = total;
      if (column == 0) partials.lse[place] = row_lse;
    } else {
      T* to = o + problem.offset(problem.o_strides, of, first_row + tile_row) + column;
      *reinterpret_cast<uint2*>(to) = make_uint2(pack<T>(total.x, total.y), pack<T>(total.z, total.w));
      if (column == 0) lse[problem.number(of, first_row + tile_row)] = row_lse;
    }
  }
  fence_proxy_async();  // TMA may write where threads have written
  __syncwarp();
  for (int i = 0; i < Config::kMergeStages; ++i) {
    hopper::release(shared.ring, state);
    state.advance();
  }
}

//| ## The last to arrive merges
//|
//| A block's part is in memory; it counts itself, and whoever counts last knows that all parts are there. It must not only
//| know, it must see: every thread's writes come before a barrier, after which thread 0 knows of them all; its
//| `__threadfence` makes them known to the card before it counts. A second fence keeps what the last block reads behind the
//| count. With one of these missing the last block may merge what stood there before.
//|
//| **A tree.** One query with one key head is split over all 132 blocks, and one block would read 132 parts while 131 have
//| gone. So of more than 32 parts 12 are merged by the last of their 12 blocks, and the results of these likewise.
//|
//| **The counter resets itself.** The last to arrive sets it to 0, so that the next launch finds it as this one did, and no
//| kernel is needed to clear it. That saves a launch, a microsecond or more of the fifteen that a short cache takes. The
//| price is a promise: the counters are 0 before the first launch.

template <typename T, typename Config>
__device__ __forceinline__ void finish_parts(int& is_last,  // in shared memory
                                             const Problem& problem, const Segment& segment,
                                             const Workspace& workspace, T* o, float* lse) {
  constexpr int kHeadDim = Config::kHeadDim;
  const int first_row = segment.row_tile * Config::kRows;
  const int rows = min(problem.rows() - first_row, Config::kRows);
  int index = segment.part, count = segment.parts, distance = 1;  // among results of the level; parts apart
  for (int level = 0; count > 1; ++level) {
    const int width = merge_width(count), first = index / width * width, merged = min(width, count - first);
    if (merged > 1) {
      unsigned* arrived =
          &workspace.arrivals[level * kMostRingBlocks + segment.first_block + first * distance];
      named_barrier_sync<kAllConsumers, Config::kConsumers>();  // all threads have written their part
      if (threadIdx.x == 0) {
        __threadfence();  // what thread 0 knows of is there before its block counts itself
        is_last = atomicAdd(arrived, 1u) == unsigned(merged - 1);
        __threadfence();                            // nothing is read before the count
        if (is_last != 0) atomicExch(arrived, 0u);  // as the next launch wants it
      }
      named_barrier_sync<kAllConsumers, Config::kConsumers>();  // thread 0 has asked
      if (is_last == 0) return;
    }
    const bool is_root = count <= width;
    //| The block that is last merges a row a warp. At the root of the tree the row is the result; below it, it takes the place of its first part.
    if (merged > 1 || is_root) {
      for (int row = threadIdx.x / 32; row < rows; row += 2 * Config::kWarps) {
        //| Two rows at a time, so that the loads of one need not wait for the other's stores.
        WarpRow<kHeadDim> result[2];
#pragma unroll
        for (int r = 0; r < 2; ++r)
          if (row + r * Config::kWarps < rows)
            result[r] = merge_row<kHeadDim>(workspace.partials, merged, [&](int i) {
              return place_of<Config>(segment, (first + i) * distance, row + r * Config::kWarps);
            });
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int own = row + r * Config::kWarps;
          if (own >= rows) continue;
          if (is_root)
            store_row<T>(result[r], problem, problem.pack_of(segment.pack), first_row + own, o, lse);
          else
            store_row<kHeadDim>(result[r], workspace.partials,
                                place_of<Config>(segment, first * distance, own));
        }
      }
    }
    index /= width;
    count = (count + width - 1) / width;
    distance *= width;
  }
}

//| ## The kernel
//|
//| The last warp produces, all others consume. Both go through the block's segments, each with its own list.

/// Attention of all tiles of rows. Grid: as many blocks as the plan wants; shared memory: RingShared.
template <typename T, typename Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    ring(const T* q,  // [batch, heads, seqlen_q, kHeadDim], strided
         T* o,        // [batch, heads, seqlen_q, kHeadDim], strided
         float* lse,  // [batch, heads, seqlen_q]
         Cache cache, Workspace workspace, Problem problem, Plan plan) {
  using Shared = RingShared<Config>;
  static_assert(sizeof(Shared) <= hopper::kMostSharedBytes, "more shared memory than a block may have");
  Shared& shared = *dynamic_shared<Shared>();
  //| `full` waits for the producer's lane and its bytes, `empty` for one lane of each consumer warp.
  if (threadIdx.x == 0) {
    hopper::initialise(shared.ring, 1, Config::kWarps, "full", "empty");
    fence_mbarrier_init();  // TMA sees the barriers,
  }
  __syncthreads();  // and so do all threads

  Segments<Config::kKeys> segments(plan, problem);
  const int warp = threadIdx.x / 32;
  if (warp == Config::kWarps) return produce<Config>(shared, cache, problem, plan, segments);

  //| A consumer warp has 16 rows of the tile of queries, and every so many-th chunk of the keys.
  const int row_in_tile = warp / Config::kKeyWarps * kRowsOfMma, key_warp = warp % Config::kKeyWarps;
  PipelineState<Config::kStages> state;
  const Segment& segment = shared.segment[warp];
  for (Segment next; segments.next(next);) {
    __syncwarp();  // all lanes have read the segment before
    if (threadIdx.x % 32 == 0) {
      shared.segment[warp] = next;
      shared.place[warp] = segments.at;
    }
    __syncwarp();  // and see this one
    const int first_row = segment.row_tile * Config::kRows + row_in_tile;
    Queries<Config> queries;
    load_queries<T, Config>(queries, q, problem, problem.pack_of(segment.pack), first_row);
    const WarpSums<Config> sums =
        attend<T, Config>(shared, state, queries, problem, segment, plan.first_key, key_warp);
    finish_block<T, Config>(shared, state, sums, problem, segment, workspace.partials, o, lse);
    if (segment.parts > 1) finish_parts<T, Config>(shared.is_last, problem, segment, workspace, o, lse);
    segments.at = shared.place[warp];
  }
}

}  // namespace flashbook::decoding
