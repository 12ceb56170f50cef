//| # A block's warps merge, and the last to arrive merges the blocks' parts
//|
//| Every warp of the ring has a maximum, a sum and an output for its own keys. When a block has finished an
//| item, its warps merge these. If other blocks have keys of the same item, the result is a part, which goes
//| to the workspace, and the last block to arrive merges the parts.
//|
//| ![Four blocks write a partial O and log-sum-exp; the last to arrive at the counter merges
//| them](../../docs/figures/merge_parts.svg)
#pragma once
#include "chapters/08_decoding/narrow_tile.cuh"
#include "common/ptx/atomic.h"
#include "common/ptx/barrier.h"
#include "common/ptx/dependent_launch.h"
#include "common/ptx/fence.h"

namespace flashbook::decoding {

/// One warp's maxima, sums and output.
template <typename Traits>
struct WarpSums {
  float output[Traits::kHeadDim / 2];
  Rows rows;
};

//| ## The block's warps merge
//|
//| Each warp writes its maxima, sums and output to shared memory, the output into stages that the producer
//| has released to them. Then each thread sums its own columns with the weights of all warps.
//|
//| Column indices are permuted, depending on row and column, to avoid bank conflicts. Eight lanes write at a
//| time, to two rows and, in each, four columns that are 32 apart (16 at d = 64 and 256). Without the
//| permutation they would all hit the same banks.

/// Returns the place of column `column` in a warp's row of sums. Four columns from a multiple of four on stay
/// contiguous.
template <typename Traits>
__device__ __forceinline__ float& sums_at(RingShared<Traits>& shared,
                                          const PipelineState<Traits::kStages>& first, int warp, int row,
                                          int column) {
  const int byte = warp * Traits::kWarpSumBytes, four = column / 4;
  int stage = first.stage + byte / Traits::kBytesPerStage;
  if (stage >= Traits::kStages) stage -= Traits::kStages;
  auto* sums = reinterpret_cast<float*>(shared.ring.tile[stage].byte + byte % Traits::kBytesPerStage);
  return sums[row * Traits::kHeadDim + (four ^ (four / 8 % 4 + row % 2 * 4)) * 4 + column % 4];
}

//| Each place in the workspace belongs to a block. With equal work a block may have the last part of one item
//| and the first of another, so each block has two places.
/// Returns the place in the workspace of row `row` of a part; `first_block` has part 0 of its item. A block
/// has at most two parts of items that it shares with other blocks: the end of one that began before, and the
/// beginning of one that continues.
template <typename Traits>
__device__ __forceinline__ int place_of(int first_block, int part, int row) {
  return (2 * (first_block + part) + (part == 0)) * Traits::kRows + row;
}

/// Returns the normalised sum over the block's warps for row `tile_row` of the tile. Called by one warp.
template <typename Traits>
__device__ __forceinline__ WarpRow<Traits::kHeadDim> row_of_warps(RingShared<Traits>& shared,
                                                                  const PipelineState<Traits::kStages>& first,
                                                                  int tile_row) {
  constexpr int kKeyWarps = Traits::kKeyWarps;
  using Row = WarpRow<Traits::kHeadDim>;
  const int from = Traits::kRowTiles == 1 ? 0 : tile_row / kRowsPerMma * kKeyWarps;
  const int row = tile_row % kRowsPerMma;
  float max = shared.max[from][row], weights = 0;
#pragma unroll
  for (int w = 1; w < kKeyWarps; ++w) max = fmaxf(max, shared.max[from + w][row]);
  const float base = max == -INFINITY ? 0.0f : max;
  //| A warp without keys has the maximum -inf, the weight 0 and an output of 0.
  Row total = {}, own;
#pragma unroll
  for (int w = 0; w < kKeyWarps; ++w) {
    const float weight = exp2_approx(shared.max[from + w][row] - base);
    weights += weight * shared.sum[from + w][row];
#pragma unroll
    for (int c = 0; c < Row::kColumns; c += Row::kRun)
      *reinterpret_cast<typename Row::Run*>(own.value + c) =
          *reinterpret_cast<const typename Row::Run*>(&sums_at(shared, first, from + w, row, Row::column(c)));
#pragma unroll
    for (int c = 0; c < Row::kColumns; ++c) total.value[c] += weight * own.value[c];
  }
  //| The row is normalised here, and maximum and sum become one number, the log-sum-exp.
  const float inverse = weights > 0 ? 1 / weights : 0;
#pragma unroll
  for (int c = 0; c < Row::kColumns; ++c) total.value[c] *= inverse;
  total.lse = log_sum_exp(max, weights);
  return total;
}

//| The launch decides where a finished row goes. If the launch covers only some of the keys, as with [a
//| shared prefix](host/shared_prefix.cuh), another kernel merges its results and needs float32.
/// Stores a finished row, row `row` of the pack: in O, or in float32 if the launch covers only some of the
/// keys. One warp.
template <typename T, int kHeadDim, typename PlanType>
__device__ __forceinline__ void store_finished(const WarpRow<kHeadDim>& result, const Partials& whole,
                                               const Problem& problem, const PlanType& plan, const Pack& of,
                                               int row,
                                               T* o,          // [batch, heads, seqlen_q, kHeadDim], strided
                                               float* lse) {  // [batch, heads, seqlen_q]
  //| With [rules](rules.cuh) a row first merges its head's sink.
  if constexpr (PlanType::kSinks)
    store_row<T, PlanType::kPadded>(plan.finished(result, of.first_head + row % problem.pack), problem, of,
                                    row, o, lse, plan.template columns<kHeadDim>());
  else if (whole.o != nullptr)
    store_row(result, whole, problem.number(of, row));
  else
    store_row<T>(result, problem, of, row, o, lse);
}

/// Merges the consumer warps' sums and stores the result, or the block's part of it. All consumers.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void finish_block(RingShared<Traits>& shared,
                                             PipelineState<Traits::kStages>& state,
                                             const WarpSums<Traits>& own, const Problem& problem,
                                             const PlanType& plan, const Segment& segment,
                                             const Workspace& workspace,
                                             T* o,          // [batch, heads, seqlen_q, kHeadDim], strided
                                             float* lse) {  // [batch, heads, seqlen_q]
  constexpr int kColumns = kThreadColumns<Traits::kHeadDim>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = segment.row_tile * Traits::kRows;
  const int rows = min(plan.rows_of(problem, segment.pack) - first_row, Traits::kRows);
  named_barrier_sync<kAllConsumers, Traits::kConsumers>();  // all have read the previous segment's results
  //| Each warp stores its results in stages of the ring, which the producer has handed out.
  const PipelineState<Traits::kStages> first = state;
  PipelineState<Traits::kStages> waited = state;
  for (int i = 0; i < Traits::kMergeStages; ++i) {
    wait_full(shared.ring, waited);  // the stage is handed out
    waited.advance();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
    const float sum = quad_sum(own.rows.sum[r]);
    if (warp / Traits::kKeyWarps * kRowsPerMma + row >= rows) continue;
    if (lane % 4 == 0) {
      shared.max[warp][row] = own.rows.max[r] * problem.scale_log2;
      shared.sum[warp][row] = sum;
    }
    //| A thread has contiguous columns and stores four at a time.
#pragma unroll
    for (int columns = 0; columns < Traits::kHeadDim; columns += kSpan<Traits::kHeadDim>)
#pragma unroll
      for (int i = 0; i < kColumns; i += 4) {
        const auto at = [&](int c) {
          return own.output[place_in_output<Traits::kHeadDim>(columns, i + c, r)];
        };
        *reinterpret_cast<float4*>(&sums_at(shared, first, warp, row, columns + lane % 4 * kColumns + i)) =
            make_float4(at(0), at(1), at(2), at(3));
      }
  }
  named_barrier_sync<kAllConsumers, Traits::kConsumers>();  // all warps have written their results

  //| Each warp merges one row at a time. If other blocks share the item, the row is stored as a part;
  //| otherwise it is finished. Both are normalised and stored with their log-sum-exp, so that parts of any
  //| size merge alike.
  const Pack of = plan.rows_at(problem, segment.pack);
#pragma unroll 1  // few warps have a second row
  for (int row = warp; row < rows; row += Traits::kWarps) {
    const WarpRow<Traits::kHeadDim> total = row_of_warps(shared, first, row);
    if (segment.parts > 1)
      store_row(total, workspace.partials, place_of<Traits>(segment.first_block, segment.part, row));
    else
      store_finished<T>(total, workspace.whole, problem, plan, of, first_row + row, o, lse);
  }
  fence_proxy_async();  // TMA may write where threads have written
  __syncwarp();
  for (int i = 0; i < Traits::kMergeStages; ++i) {
    release(shared.ring, state);
    state.advance();
  }
}

//| ## The last to arrive merges
//|
//| A warp has stored its rows of the block's part, and adds 1 to a counter. Warps with the same rows in other
//| blocks add to the same counter, so the last one to arrive finds all parts stored. Three steps make sure
//| that it also sees them:
//|
//| * All lanes write, followed by a `__syncwarp`, which makes their writes visible to lane 0.
//| * Lane 0's addition publishes these writes (*release*), and acquires those that earlier arrivals published
//|   (*acquire*).
//| * After another `__syncwarp` all lanes may read.
//|
//| With a plain `atomicAdd` the last warp may merge stale memory.
//|
//| The block's other warps need not wait for any of this. Warp 0 of all blocks has one counter, warp 1
//| another, so the first warps may be done while the second ones are still merging.
//|
//| **The counter resets itself.** The last warp to arrive sets it to 0 for the next launch. That saves a
//| kernel that clears it, a microsecond or more. In return, the counters must be 0 before the first launch.

/// Counts the warp as arrived with its part of the segment's item, and returns whether it is the last. All
/// lanes; those of the last warp may then read all parts.
__device__ __forceinline__ bool arrives_last(const Segment& segment, const Workspace& workspace) {
  const int warp = threadIdx.x / 32;
  __syncwarp();  // all lanes have written their part
  bool is_last = false;
  if (threadIdx.x % 32 == 0) {
    unsigned* arrived = &workspace.arrivals[segment.first_block * kMaxRingWarps + warp];
    is_last = atomic_add_acq_rel(arrived, 1u) == unsigned(segment.parts - 1);
    if (is_last) atomicExch(arrived, 0u);  // reset for the next launch
  }
  if (!__any_sync(kWholeWarp, is_last)) return false;
  __syncwarp();  // all lanes may read what lane 0 has acquired
  return true;
}

/// Counts the warp as arrived, and merges the parts of its rows of the segment's item if it is the last. All
/// consumer warps.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void finish_parts(const Problem& problem, const PlanType& plan,
                                             const Segment& segment, const Workspace& workspace,
                                             T* o,          // [batch, heads, seqlen_q, kHeadDim], strided
                                             float* lse) {  // [batch, heads, seqlen_q]
  constexpr int kHeadDim = Traits::kHeadDim;
  const int warp = threadIdx.x / 32, first_row = segment.row_tile * Traits::kRows;
  const int rows = min(plan.rows_of(problem, segment.pack) - first_row, Traits::kRows);
  if (warp >= rows || !arrives_last(segment, workspace)) return;
    //| This is the last warp with these rows to arrive, so it merges them one after another.
#pragma unroll 1
  for (int row = warp; row < rows; row += Traits::kWarps) {
    const auto place = [&](int part) { return place_of<Traits>(segment.first_block, part, row); };
    store_finished<T>(merge_row<kHeadDim>(workspace.partials, segment.parts, place), workspace.whole, problem,
                      plan, plan.rows_at(problem, segment.pack), first_row + row, o, lse);
  }
}

//| ## Too many parts for one block
//|
//| One query with one key head is split over all 132 blocks. At d = 256 and 16 rows their parts are 2 MB,
//| which one block would read while 131 multiprocessors idle. So a second kernel with one block per row
//| merges items of more than 48 parts. It is launched while the first one is still running, and waits until
//| that has ended, which makes all of the first kernel's writes visible without a fence.
//|
/// Merges the parts of items that have more than plan.parts_of_last. Grid: (kRows, items).
template <typename T, typename Traits, typename PlanType>
__global__ void __launch_bounds__(kManyWarps * 32, 1)
    merge_many(Workspace workspace,
               T* o,        // [batch, heads, seqlen_q, kHeadDim], strided
               float* lse,  // [batch, heads, seqlen_q]
               int blocks,  // blocks of the first kernel
               Problem problem, PlanType plan) {
  const Segment item = Segments<Traits::kKeys, PlanType>(plan, problem, blocks).whole_item(blockIdx.y);
  const int row = blockIdx.x, pack_row = item.row_tile * Traits::kRows + row;
  //| A block without anything to merge waits too, because later launches rely on this kernel's end.
  wait_for_launch_before();  // all parts are stored
  if (item.parts <= plan.parts_of_last || pack_row >= plan.rows_of(problem, item.pack)) return;
  merge_by_block<Traits::kHeadDim>(
      workspace.partials, item.parts, [&](int part) { return place_of<Traits>(item.first_block, part, row); },
      [&](const WarpRow<Traits::kHeadDim>& merged) {
        if constexpr (PlanType::kSinks)  // without sinks the closure holds no plan
          store_finished<T>(merged, workspace.whole, problem, plan, plan.rows_at(problem, item.pack),
                            pack_row, o, lse);
        else
          store_finished<T>(merged, workspace.whole, problem, Plan{}, problem.pack_of(item.pack), pack_row, o,
                            lse);
      });
}

}  // namespace flashbook::decoding
