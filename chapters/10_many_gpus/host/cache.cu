//| # From a launch of step 7 to its kernel
#include <algorithm>

#include "chapters/10_many_gpus/host/cache.h"
#include "chapters/10_many_gpus/step7_cache.cuh"
#include "common/attention/operation.h"
#include "common/device/dispatch.h"
#include "common/hopper/launch.h"

namespace flashbook::many_gpus {
namespace {

CacheProblem problem_of(const Cache& cache) {
  const Spec& spec = cache.spec;
  return {.rows = spec.heads / spec.kv_heads * spec.seqlen_q,
          .queries = spec.seqlen_q,
          .causal = spec.causal(),
          .scale_log2 = float(spec.scale * std::numbers::log2e),
          .keys = cache.keys,
          .shift = spec.seqlen_k - spec.seqlen_q};
}

/// Returns the number of row tiles of all key heads.
int row_tiles(const Cache& cache) {
  return cache.spec.batch * cache.spec.kv_heads * ceil_div(problem_of(cache).rows, kRowsPerWarpgroup);
}

template <typename Out, int kHeadDim>
void launch_merge(const float* part_o, const float* part_lse, int parts, int64_t rows, Out* o, float* lse,
                  device::Queue& queue) {
  if (rows > 0)
    device::launch(merge_all<Out, kHeadDim>, dim3(unsigned(ceil_div(rows, int64_t(kMergeWarps)))),
                   dim3(kMergeWarps * 32), 0, queue.stream(), part_o, part_lse, parts, rows, o, lse);
}

}  // namespace

//| A block fills a multiprocessor's shared memory, so the launch has one block per multiprocessor, or
//| slightly fewer.
int parts_of(const Cache& cache) {
  int tiles = 0;
  device::with_head_dim(cache.spec.head_dim, [&]<int kHeadDim>() {
    tiles = ceil_div(cache.keys.total(), CacheVersion<kHeadDim>::kKeys);
  });
  return std::min(tiles, std::max((device::multiprocessors() - cache.margin) / row_tiles(cache), 1));
}

void attend(const Cache& cache, int parts, float* o, float* lse, device::Queue& queue) {
  const CacheProblem problem = problem_of(cache);
  const int64_t rows_of_o = cache.spec.q_rows();
  Spec spec = cache.spec;  // shape of the launch: one head per key head, one query per row
  spec.kv_heads *= spec.batch;
  spec.heads = spec.kv_heads;
  spec.batch = 1;
  spec.seqlen_q = problem.rows;
  spec.seqlen_k = cache.keys.total();
  device::with_16_bit_type_and_head_dim(spec.dtype, spec.head_dim, [&]<typename T, int kHeadDim>() {
    using Version = CacheVersion<kHeadDim>;
    device::launch(attend_cache<T, Version>, dim3(unsigned(row_tiles(cache)), unsigned(parts)),
                   dim3(Version::kThreads), sizeof(CacheShared<T, Version>), queue.stream(),
                   tile_map(spec, TensorId::q, cache.q, kRowsPerWarpgroup),
                   tile_map(spec, TensorId::k, cache.k, Version::kKeys),
                   tile_map(spec, TensorId::v, cache.v, Version::kKeys), o, lse, rows_of_o, problem);
  });
}

void merge_parts(const Cache& cache, const float* part_o, const float* part_lse, int parts, int64_t rows,
                 float* o, float* lse, device::Queue& queue) {
  device::with_head_dim(cache.spec.head_dim, [&]<int kHeadDim>() {
    launch_merge<float, kHeadDim>(part_o, part_lse, parts, rows, o, lse, queue);
  });
}

void merge_result(const Cache& cache, const float* part_o, const float* part_lse, int parts, int64_t rows,
                  void* o, float* lse, device::Queue& queue) {
  device::with_16_bit_type_and_head_dim(
      cache.spec.dtype, cache.spec.head_dim, [&]<typename T, int kHeadDim>() {
        launch_merge<T, kHeadDim>(part_o, part_lse, parts, rows, static_cast<T*>(o), lse, queue);
      });
}

}  // namespace flashbook::many_gpus
