//| # From a launch of step 6 to its kernel
//|
//| The element type and the head dimension are known only at run time, but kernels need them at compile time.
#include "chapters/10_many_gpus/host/gradient.h"
#include "chapters/10_many_gpus/step6_sums.cuh"
#include "common/device/dispatch.h"
#include "common/device/launch.h"

namespace flashbook::many_gpus {
namespace {

constexpr int kWorkspaceRows = 128;  ///< every tile of queries is whole in the workspace

int64_t query_heads(const Gradient& g) { return int64_t(g.spec.batch) * g.spec.heads; }

dim3 grid_of(int64_t threads, int block_threads) {
  return dim3(unsigned(ceil_div(threads, int64_t(block_threads))));
}

}  // namespace

int padded_rows(int queries) { return ceil_div(queries, kWorkspaceRows) * kWorkspaceRows; }

void prepare(const Gradient& g, const void* o, const float* lse, device::Queue& queue) {
  device::with_16_bit_type_and_head_dim(g.spec.dtype, g.spec.head_dim, [&]<typename T, int kHeadDim>() {
    const int padded = padded_rows(g.spec.seqlen_q);
    const int64_t rows = query_heads(g) * padded;
    device::launch(prepare<T, kHeadDim>, grid_of(rows, kPrepareRows<kHeadDim>), dim3(kPrepareThreads), 0,
                   queue.stream(), static_cast<const T*>(o), static_cast<const T*>(g.d_o), lse, g.workspace,
                   rows, g.spec.seqlen_q, padded);
  });
}

void differentiate(const Gradient& gradient, device::Queue& queue) {
  device::with_head_dim(gradient.spec.head_dim,
                        [&]<int kHeadDim>() { differentiate_with<kHeadDim>(gradient, queue); });
}

void add(float* to, const float* from, int64_t floats, device::Queue& queue) {
  if (floats == 0) return;
  device::launch(add_part<kSumThreads>, grid_of(floats / 4, kSumThreads), dim3(kSumThreads), 0,
                 queue.stream(), reinterpret_cast<float4*>(to), reinterpret_cast<const float4*>(from),
                 floats / 4);
}

void clear(float* to, int64_t floats, device::Queue& queue) {
  if (floats == 0) return;
  device::launch(no_part<kSumThreads>, grid_of(floats / 4, kSumThreads), dim3(kSumThreads), 0, queue.stream(),
                 reinterpret_cast<float4*>(to), floats / 4);
}

void round_keys(const Gradient& g, const float* own, const float* home, device::Queue& queue) {
  const int64_t fours = 2 * int64_t(g.spec.batch) * g.spec.kv_heads * g.spec.seqlen_k * g.spec.head_dim / 4;
  if (fours == 0) return;
  device::with_16_bit_type(g.spec.dtype, [&]<typename T>() {
    device::launch(round_sums<T, kSumThreads>, grid_of(fours, kSumThreads), dim3(kSumThreads), 0,
                   queue.stream(), reinterpret_cast<const float4*>(own),
                   reinterpret_cast<const float4*>(home), static_cast<uint2*>(g.dk), fours, fours / 2,
                   g.spec.scale);
  });
}

void round_queries(const Gradient& g, void* dq, device::Queue& queue) {
  device::with_16_bit_type_and_head_dim(g.spec.dtype, g.spec.head_dim, [&]<typename T, int kHeadDim>() {
    constexpr int kQueries = GradientVersion<kHeadDim, Seen::all>::kQueries;
    device::launch(round_queries<T, kHeadDim, kQueries>,
                   dim3(unsigned(query_heads(g) * ceil_div(g.spec.seqlen_q, kQueries))),
                   dim3(kKeyConsumerThreads), 0, queue.stream(), static_cast<const float*>(g.workspace.dq),
                   static_cast<T*>(dq), g.spec.seqlen_q, padded_rows(g.spec.seqlen_q), g.spec.scale);
  });
}

}  // namespace flashbook::many_gpus
