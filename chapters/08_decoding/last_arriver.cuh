//| # A block's warps merge, and the last block to arrive merges the blocks
//|
//| Every warp of the ring has a maximum, a sum and an output of its own keys. When a block is done with an item they become one. If other
//| blocks have keys of the same item, that is a part, which goes to the workspace; and whoever comes last merges the parts.
//|
//| ![Four blocks write a partial O and log-sum-exp; the last to arrive at the counter merges them](../../docs/figures/merge_parts.svg)
#pragma once
#include "chapters/08_decoding/narrow_tile.cuh"
#include "common/ptx/atomic.h"
#include "common/ptx/barrier.h"
#include "common/ptx/dependent_launch.h"
#include "common/ptx/fence.h"

namespace flashbook::decoding {

/// What a warp's keys came to.
template <typename Config>
struct WarpSums {
  float output[Config::kHeadDim / 2];
  Rows rows;
};

//| ## The block's warps merge
//|
//| The largest maximum of a row is found through shared memory. Each warp brings its
//| sums to it and lays them into the stages that the producer has handed out, and then all threads add up.
//|
//| Where a column lies in a row of sums depends on the row and on the column: the lanes that write at a time hold two rows, and every
//| 16th column of them, which would meet in the same banks.

/// Where four columns of a warp's row of sums lie.
template <typename Config>
__device__ __forceinline__ float4* sums_at(RingShared<Config>& shared,
                                           const PipelineState<Config::kStages>& first, int warp, int row,
                                           int column) {
  const int byte = warp * Config::kWarpSumBytes, four = column / 4;
  int stage = first.stage + byte / kStageBytes;
  if (stage >= Config::kStages) stage -= Config::kStages;
  auto* sums = reinterpret_cast<float4*>(shared.ring.tile[stage].byte + byte % kStageBytes);
  return sums + row * (Config::kHeadDim / 4) + (four ^ (four / 8 % 4 + row % 2 * 4));
}

//| A place in the workspace belongs to a block. With equal work a block may hold the last part of one item and the first of another,
//| so it has two.
/// Where row `row` of a part lies in the workspace, `first_block` having part 0 of its item. A block has at
/// most two parts of items that other blocks share: the end of one that began before, and the beginning of
/// one that goes on.
template <typename Config>
__device__ __forceinline__ int place_of(int first_block, int part, int row) {
  return (2 * (first_block + part) + (part == 0)) * Config::kRows + row;
}

/// Merges the consumer warps' sums and stores the result, or the block's part of it. All consumers.
template <typename T, typename Config>
__device__ __forceinline__ void finish_block(RingShared<Config>& shared,
                                             PipelineState<Config::kStages>& state,
                                             const WarpSums<Config>& own, const Problem& problem,
                                             const Segment& segment, const Partials& partials,
                                             T* o,          // [batch, heads, seqlen_q, kHeadDim], strided
                                             float* lse) {  // [batch, heads, seqlen_q]
  constexpr float kLn2 = 0.6931471805599453f;
  constexpr int kKeyWarps = Config::kKeyWarps, kColumns = kThreadColumns<Config::kHeadDim>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_warp = warp / kKeyWarps * kKeyWarps;  // of the same rows
  const int first_row = segment.row_tile * Config::kRows;
  const int rows = min(problem.rows() - first_row, Config::kRows);
  named_barrier_sync<kAllConsumers, Config::kConsumers>();  // all have read what the segment before left
  //| First every warp says what its maxima are.
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (lane % 4 == 0) shared.max[warp][lane / 4 + 8 * r] = own.rows.max[r] * problem.scale_log2;
  named_barrier_sync<kAllConsumers, Config::kConsumers>();  // the maxima of all warps are there

  /// The largest maximum of a row, the first of whose warps is `from`.
  const auto largest = [&](int from, int row) {
    float max = shared.max[from][row];
    for (int w = 1; w < kKeyWarps; ++w) max = fmaxf(max, shared.max[from + w][row]);
    return max;
  };

  //| Then each brings its sum and its output to the largest maximum and lays them down. The stages are the ring's own, handed out by the producer.
  const PipelineState<Config::kStages> first = state;
  PipelineState<Config::kStages> waited = state;
  for (int i = 0; i < Config::kMergeStages; ++i) {
    hopper::wait_full(shared.ring, waited);  // the stage is ours
    waited.advance();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
    const float sum = quad_sum(own.rows.sum[r]);
    if (warp / kKeyWarps * kRowsOfMma + row >= rows) continue;
    const float max = shared.max[warp][row];
    const float scale = max == -INFINITY ? 0 : exp2_approx(max - largest(first_warp, row));
    if (lane % 4 == 0) shared.sum[warp][row] = sum * scale;
      //| A thread has columns side by side, and stores four at a time.
#pragma unroll
    for (int columns = 0; columns < Config::kHeadDim; columns += kSpan<Config::kHeadDim>)
#pragma unroll
      for (int i = 0; i < kColumns; i += 4) {
        const auto at = [&](int c) {
          return own.output[place_in_output<Config::kHeadDim>(columns, i + c, r)] * scale;
        };
        *sums_at(shared, first, warp, row, columns + lane % 4 * kColumns + i) =
            make_float4(at(0), at(1), at(2), at(3));
      }
  }
  named_barrier_sync<kAllConsumers, Config::kConsumers>();  // all sums are there

  //| All consumers add up, four columns a thread. A row of an item that other blocks share is stored as a part, any other is the result.
  constexpr int kPieces = Config::kHeadDim / 4;  // of four columns, that a thread adds up
  const Pack of = problem.pack_of(segment.pack);
  for (int i = threadIdx.x; i < rows * kPieces; i += Config::kConsumers) {
    const int tile_row = i / kPieces, column = i % kPieces * 4;
    const int from = tile_row / kRowsOfMma * kKeyWarps, row = tile_row % kRowsOfMma;
    float4 total = make_float4(0, 0, 0, 0);
    float weights = 0;
#pragma unroll
    for (int w = 0; w < kKeyWarps; ++w) {
      const float4 sums = *sums_at(shared, first, from + w, row, column);
      total.x += sums.x, total.y += sums.y, total.z += sums.z, total.w += sums.w;
      weights += shared.sum[from + w][row];
    }
    const float inverse = weights > 0 ? 1 / weights : 0;
    const float row_lse = weights > 0 ? (largest(from, row) + __log2f(weights)) * kLn2 : -INFINITY;
    total.x *= inverse, total.y *= inverse, total.z *= inverse, total.w *= inverse;
    //| What is stored is normalised, in both cases, with its log-sum-exp beside it: parts of any size merge alike.
    if (segment.parts > 1) {
      const int place = place_of<Config>(segment.first_block, segment.part, tile_row);
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
//| know, it must see: every thread's writes come before a barrier, after which thread 0 knows of them all. Its addition hands
//| over (*release*) what it knows of, and takes over (*acquire*) what those handed over that counted before. A barrier later all threads of the last block may read. With a plain
//| `atomicAdd` the last block may merge what stood there before.
//|
//| **The counter resets itself.** The last to arrive sets it to 0, so that the next launch finds it as this one did, and no
//| kernel is needed to clear it. That saves a launch, a microsecond or more of the fifteen that a short cache takes. The
//| price is a promise: the counters are 0 before the first launch.

constexpr int kMostPartsOfLast = 48;  ///< that the last block to arrive merges: more are a second kernel's

/// Counts the block as arrived, and merges the parts of the segment's item if it is the last. All consumers.
template <typename T, typename Config>
__device__ __forceinline__ void finish_parts(bool& is_last,  // in shared memory
                                             const Problem& problem, const Segment& segment,
                                             const Workspace& workspace,
                                             T* o,          // [batch, heads, seqlen_q, kHeadDim], strided
                                             float* lse) {  // [batch, heads, seqlen_q]
  constexpr int kHeadDim = Config::kHeadDim;
  const int first_row = segment.row_tile * Config::kRows;
  const int rows = min(problem.rows() - first_row, Config::kRows);
  named_barrier_sync<kAllConsumers, Config::kConsumers>();  // all threads have written their part
  if (threadIdx.x == 0) {
    unsigned* arrived = &workspace.arrivals[segment.first_block];
    is_last = atomic_add_acq_rel(arrived, 1u) == unsigned(segment.parts - 1);
    if (is_last) atomicExch(arrived, 0u);  // as the next launch wants it
  }
  named_barrier_sync<kAllConsumers, Config::kConsumers>();  // thread 0 has asked
  if (!is_last) return;
  //| The block that is last merges a row a warp.
  for (int row = threadIdx.x / 32; row < rows; row += Config::kWarps) {
    const auto place = [&](int part) { return place_of<Config>(segment.first_block, part, row); };
    store_row<T>(merge_row<kHeadDim>(workspace.partials, segment.parts, place), problem,
                 problem.pack_of(segment.pack), first_row + row, o, lse);
  }
}

//| ## More parts than one block should merge
//|
//| One query with one key head is split over all 132 blocks. At d = 256 and 16 rows their parts are 2 MB, and one block would read
//| them while 131 multiprocessors have nothing to do. So items of more than 48 parts are merged by a second kernel, a block
//| for each row. It is launched while the first one still runs, and begins when that has ended; the order of launches is the fence.
//|
//| A block's eight warps take an eighth of the parts each. What they come to are eight parts, and the first warp merges these.

constexpr int kManyWarps = 8;

/// Merges the parts of items that have more than kMostPartsOfLast. Grid: (kRows, items).
template <typename T, typename Config>
__global__ void __launch_bounds__(kManyWarps * 32, 1)
    merge_many(Partials partials,
               T* o,        // [batch, heads, seqlen_q, kHeadDim], strided
               float* lse,  // [batch, heads, seqlen_q]
               int blocks,  // of the first kernel
               Problem problem, Plan plan) {
  constexpr int kHeadDim = Config::kHeadDim;
  __shared__ float4 warp_o[kManyWarps][kHeadDim / 4];
  __shared__ float warp_lse[kManyWarps];
  const Segment item = Segments<Config::kKeys>(plan, problem, blocks).whole_item(blockIdx.y);
  const int row = blockIdx.x, pack_row = item.row_tile * Config::kRows + row, warp = threadIdx.x / 32;
  //| A block that has nothing to merge waits too: whoever comes after this launch may rely on its end.
  wait_for_launch_before();  // all parts are there
  if (item.parts <= kMostPartsOfLast || pack_row >= problem.rows()) return;

  const Shares shares = {item.parts / kManyWarps, item.parts % kManyWarps};
  const int first = shares.begin(warp);
  const auto place = [&](int part) { return place_of<Config>(item.first_block, first + part, row); };
  const WarpRow<kHeadDim> own = merge_row<kHeadDim>(partials, shares.begin(warp + 1) - first, place);
  const Partials of_warps = {&warp_o[0][0].x, warp_lse};
  store_row<kHeadDim>(own, of_warps, warp);
  __syncthreads();  // all warps' rows are there
  if (warp == 0)
    store_row<T>(merge_row<kHeadDim>(of_warps, kManyWarps, [](int part) { return part; }), problem,
                 problem.pack_of(item.pack), pack_row, o, lse);
}

}  // namespace flashbook::decoding
