//| # Step 7: one query, keys everywhere
//|
//| When a model generates text, one query or a few attend to all keys of the cache, and one sequence's cache
//| can be larger than a GPU's memory. There are many keys and few queries, so the keys stay and the *query*
//| travels: every rank computes every query on its own keys, and the parts are merged.
//|
//| This file has a rank's two kernels: attention for a few queries over some of the keys, and the merge of
//| any number of parts. They are the simplest form of chapter 8's kernels. A tile has 64 rows anyway, so it
//| holds all query heads that share a key head. A rank's keys are split among blocks, so that all
//| multiprocessors read. Loading a tile takes longer than its products, so throughput depends on the bytes in
//| flight: the pipeline holds up to 160 KB.
//|
//| ![Four blocks write a partial O and log-sum-exp; the last to arrive at the counter merges
//| them](../../docs/figures/merge_parts.svg)
#pragma once
#include "chapters/10_many_gpus/merge.cuh"
#include "common/hopper/epilogue.h"
#include "common/hopper/mask.h"
#include "common/hopper/pipeline.h"
#include "common/hopper/softmax.h"

namespace flashbook::many_gpus {

//| ## Rows
//|
//| A row of a tile is one query of one head of the group: all queries of the first head, then those of the
//| second, as they are in memory. So TMA loads them the way it loads keys. One index counts batch entries and
//| key heads together.
/// The shape of one launch.
struct CacheProblem {
  int rows;                 ///< rows per key head: the queries of all heads that share it
  device::Divisor queries;  ///< queries per head
  bool causal;
  float scale_log2;
  Tokens keys;  ///< the rank's keys
  int shift;    ///< seqlen_k - seqlen_q of the whole sequence

  /// Returns the last of these keys that a row sees; negative if it sees none. The last query sees the most.
  __device__ int last_key(int row) const {
    if (!causal) return keys.total() - 1;
    return keys.before(row % queries + shift + 1) - 1;
  }
};

//| ## Sizes
//|
//| A tile is 16 KB, or 32 KB at d = 256. One warpgroup multiplies, one warp loads tiles.
/// One version of the kernel, as a type.
template <int kHeadDim_>
struct CacheVersion {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kKeys = kHeadDim == 64 ? 128 : 64;
  static constexpr int kStages = kHeadDim == 256 ? 5 : 8;
  static constexpr int kThreads = kWarpgroup + 32;
};

/// Shared memory of a block.
template <typename T, typename Version>
struct CacheShared {
  Tile<T, kRowsPerWarpgroup, Version::kHeadDim> q;
  Pipeline<Tile<T, Version::kKeys, Version::kHeadDim>, Version::kStages> pipeline;
  uint64_t q_full;
};

//| ## The kernel
//|
//| Each tile goes through scores, softmax and values in turn. Overlapping them would not help, since tensor
//| cores are not the bottleneck here. The fifth warp runs ahead by as many tiles as there are stages.
/// Computes attention for 64 rows over a part of the keys. Grid: (tiles of rows of all key heads, parts).
template <typename T, typename Version>
__global__ void __launch_bounds__(Version::kThreads, 1)
    attend_cache(const __grid_constant__ CUtensorMap q_map,  // [kv heads, panels, rows, 64]
                 const __grid_constant__ CUtensorMap k_map,  // [kv heads, panels, keys, 64]
                 const __grid_constant__ CUtensorMap v_map,  // [kv heads, panels, keys, 64]
                 float* part_o,                              // [parts, rows of O, head_dim]
                 float* part_lse,                            // [parts, rows of O]
                 int64_t rows_of_o, CacheProblem problem) {
  constexpr int kHeadDim = Version::kHeadDim, kKeys = Version::kKeys;
  using Shared = CacheShared<T, Version>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  const int row_tiles = (problem.rows + kRowsPerWarpgroup - 1) / kRowsPerWarpgroup;
  const int head = int(blockIdx.x) / row_tiles, first_row = int(blockIdx.x) % row_tiles * kRowsPerWarpgroup;
  //| The sizes of parts differ by at most one tile. A part without tiles has the log-sum-exp -inf.
  const int tiles = (problem.last_key(problem.queries - 1) + kKeys) / kKeys;
  const int begin = int(int64_t(tiles) * blockIdx.y / gridDim.y),
            end = int(int64_t(tiles) * (blockIdx.y + 1) / gridDim.y);
  //| Only the producer arrives on `full`; TMA's bytes complete it. A stage is empty when all four warps have
  //| read it.
  if (threadIdx.x == 0) {
    initialise(shared.pipeline, 1, kWarpsPerWarpgroup, "full", "empty");
    mbarrier_init(&shared.q_full, 1);
    name_mbarrier(&shared.q_full, "q full");
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready

  //| The producer loads the queries once, then tiles of keys and values alternately. TMA fills rows past the
  //| last with zeros.
  PipelineState<Version::kStages> state;
  if (threadIdx.x >= kWarpgroup) {
    if (threadIdx.x > kWarpgroup) return;
    mbarrier_arrive_expect_tx(&shared.q_full, decltype(shared.q)::kBytes);
    load(shared.q, q_map, &shared.q_full, first_row, {head, 0});
#pragma unroll 1
    for (int tile = begin; tile < end; ++tile) {
      fill(shared.pipeline, state, k_map, tile * kKeys, {head, 0});
      fill(shared.pipeline, state, v_map, tile * kKeys, {head, 0});
    }
    return;
  }

  //| The consumer masks only tiles that the mask or the last key cuts: those that a head's first query, which
  //| sees the fewest keys, does not see in full.
  const int row =
      first_row + int(threadIdx.x) / 32 * kRowsPerWarp + int(threadIdx.x) % 32 / 4;  // and row + 8
  float output[kHeadDim / 2] = {}, scores[kKeys / 2], correction[2];
  Fragments<kKeys> p;
  auto rows = SoftmaxRows<false>::none();
  mbarrier_wait(&shared.q_full, 0);
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    wait_full(shared.pipeline, state);
    wgmma_fence();
    issue_scores<T, kHeadDim>(scores, k_major(shared.q), k_major(shared.pipeline.tile[state.stage]));
    wgmma_wait<0>();
    wgmma_pin(scores);
    release(shared.pipeline, state);
    state.advance();
    //| The scores are in registers now, so K's stage is released before the softmax, and the next tile of
    //| keys can start loading.
    if (needs_mask(problem, 0, tile * kKeys, kKeys)) mask(scores, problem, row, tile * kKeys);
    softmax(scores, rows, correction, problem.scale_log2);
    round_to_fragments<T>(p, scores);
    rescale_rows(output, correction);
    wait_full(shared.pipeline, state);
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    issue_accumulate<T>(output, p, mn_major(shared.pipeline.tile[state.stage]));
    wgmma_wait<0>();
    wgmma_pin(output);
    wgmma_pin(p);
    release(shared.pipeline, state);
    state.advance();
  }

  //| A part is divided by its row sums and stored in float32, with its log-sum-exp.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(rows.sum[r]);
    const float factor = sum > 0 ? 1 / sum : 0;
    if (row + 8 * r >= problem.rows) continue;
    const int64_t place = blockIdx.y * rows_of_o + int64_t(head) * problem.rows + row + 8 * r;
    if (threadIdx.x % 4 == 0) part_lse[place] = log_sum_exp(rows.max[r] * problem.scale_log2, sum);
    auto* to = reinterpret_cast<float2*>(part_o + place * kHeadDim) + threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i)
      to[4 * i] = make_float2(factor * output[4 * i + 2 * r], factor * output[4 * i + 2 * r + 1]);
  }
}

//| ## Any number of parts
//|
//| `merge.cuh` merges parts one after another, as they arrive. Here all parts are available, so the largest
//| log-sum-exp is known before the first weight. The kernel runs twice: it merges the parts of a rank's
//| blocks into float32, and then the ranks' parts into O. A part without keys is skipped, and a row without
//| parts sees nothing.
/// Stores two neighbouring elements in float32, or rounded.
__device__ __forceinline__ void store_two(float* to, float a, float b) {
  *reinterpret_cast<float2*>(to) = make_float2(a, b);
}
template <typename T>
__device__ __forceinline__ void store_two(T* to, float a, float b) {
  *reinterpret_cast<uint32_t*>(to) = pack<T>(a, b);
}

/// Merges parts 0 ... parts - 1 of each row, one warp per row. Grid: rows / kMergeWarps.
template <typename Out, int kHeadDim>
__global__ void __launch_bounds__(kMergeWarps * 32) merge_all(const float* part_o,  // [parts, rows, kHeadDim]
                                                              const float* part_lse,  // [parts, rows]
                                                              int parts, int64_t rows,
                                                              Out* o,        // [rows, kHeadDim]
                                                              float* lse) {  // [rows]
  const int64_t row = int64_t(blockIdx.x) * kMergeWarps + threadIdx.x / 32;
  if (row >= rows) return;
  const int column = 2 * int(threadIdx.x % 32);
  float top = -INFINITY, sum = 0;
  for (int part = 0; part < parts; ++part) top = fmaxf(top, part_lse[part * rows + row]);
  //| A lane has two neighbouring elements of every 64, so a warp reads 256 bytes at a time.
  float2 merged[kHeadDim / 64] = {};
  for (int part = 0; part < parts; ++part) {
    const int64_t place = part * rows + row;
    if (part_lse[place] == -INFINITY) continue;
    const float weight = exp2_approx((part_lse[place] - top) * kLog2e);
    sum += weight;
#pragma unroll
    for (int i = 0; i < kHeadDim / 64; ++i) {
      const float2 two = *reinterpret_cast<const float2*>(part_o + place * kHeadDim + 64 * i + column);
      merged[i].x += weight * two.x;
      merged[i].y += weight * two.y;
    }
  }
  //| The weights are relative to the largest log-sum-exp, so their sum is at least 1, unless there is no
  //| part.
  const float factor = sum > 0 ? 1 / sum : 0;
  if (threadIdx.x % 32 == 0) lse[row] = sum > 0 ? top + __log2f(sum) * kLn2 : -INFINITY;
#pragma unroll
  for (int i = 0; i < kHeadDim / 64; ++i)
    store_two(o + row * kHeadDim + 64 * i + column, factor * merged[i].x, factor * merged[i].y);
}

}  // namespace flashbook::many_gpus
