//| # Chapter 8's descriptor
//|
//| Seven steps of decoding: few queries, a long cache. It runs on the host; [launch.cuh](launch.cuh) has the launches.
#include "chapters/08_decoding/host/chapter.h"
#include "chapters/08_decoding/host/latent.h"
#include "chapters/08_decoding/host/launch.cuh"
#include "common/attention/cost.h"
#include "common/attention/pages.h"
#include "common/device/dispatch.h"

namespace flashbook {
namespace {

using namespace decoding;

constexpr Step kSteps[] = {
    {"chapter 5's way",
     "A block for each query head, which reads the keys and values of its key head from the first to the "
     "last."},
    {"a group in one tile",
     "The query heads that share a key head are rows of one tile, so keys and values are read once."},
    {"keys split over blocks",
     "Every block takes a part of the keys, and a second kernel merges the partial results."},
    {"a deep ring",
     "Shared memory is one ring of narrow tiles that a warp keeps filled, and the last to arrive merges."},
    {"pages",
     "A table says which page has a sequence's next keys, and TMA puts a tile together page by page."},
    {"equal work", "All tiles of keys are numbered through and dealt out evenly, wherever a sequence ends."},
    {.name = "latent attention",
     .idea = "Keys of 576 elements are values too, and two warpgroups have a half of the output each.",
     .latent = true},
};
constexpr DType kTypes[] = {DType::f16, DType::bf16};

/// One new token for each of 16 sequences of 8192: the shape of Llama-3-8B's attention.
constexpr auto shape_of_cache = [](int batch, int heads, int kv_heads, int seqlen_k, int head_dim) {
  return Shape{.batch = batch,
               .heads = heads,
               .kv_heads = kv_heads,
               .seqlen_q = 1,
               .seqlen_k = seqlen_k,
               .head_dim = head_dim,
               .dtype = DType::bf16,
               .scale = default_scale(head_dim)};
};

constexpr int64_t kMostBlocks = 65535;  // of a grid's y

int group_of(const Shape& shape) { return shape.heads / shape.kv_heads; }

//| ## What cannot run
//|
//| Pages and lengths by sequence are this chapter's own, and the check of dense attention refuses both. So a copy of the shape without them is checked. Latent attention has one head of 576 elements, of which 512 are values; to the dense check its halves look like `head_dim` 256.
std::string why_not(const Shape& shape, int step) {
  if (shape.dtype != DType::f16 && shape.dtype != DType::bf16)
    return "chapter 8 takes f16 and bf16: choose one with --dtype";
  if (int64_t(shape.batch) * shape.heads > kMostBlocks)
    return "batch * heads is at most 65535: split the batch with --batch";
  if (kSteps[step - 1].latent && !shape.is_latent())
    return "this step takes latent keys only: give --head-dim 576, or another step";
  Shape dense = shape;
  dense.visibility.lengths.clear();
  if (kSteps[step - 1].latent) {
    if (std::string reason = why_not_latent_pages(shape); !reason.empty()) return reason;
    dense.paging = {};
    dense.head_dim = kLatentValueDim / 2;  // which is dense attention's
    dense.layout = {};
    return why_not_dense(dense);
  }
  if (step >= 5) {
    const int rows = shape.paging.rows;
    if (rows > 0 && (rows < kRowsOfMma || !std::has_single_bit(unsigned(rows))))
      return "pages have 16, 32, 64, ... rows here, a power of two: give such a number";
    dense.paging = {};
  }
  return why_not_dense(dense);
}

//| ## The workspace
//|
//| Partial results, if the keys are split: a row of O in float32 and its log-sum-exp for each query and part. From step 4 on there are counters of arrived blocks, too. Those must be zero before the first call, and the last block of a sequence sets its own back.
/// What parts take.
int64_t parts_bytes(const Shape& shape, int step) {
  if (kSteps[step - 1].latent) return latent_workspace_bytes(shape);
  if (step < 3) return 0;
  if (step > 3) return ring_workspace_bytes(shape, ring_launch(shape, step == 6));
  const int parts = parts_of(shape);
  return parts == 1 ? 0 : partial_bytes(shape, parts);
}

/// Of several sequences some room more in step 6, whose prefixes may be shared.
int64_t workspace_bytes(const Shape& shape, int step) {
  return step == 6 && shape.batch > 1 ? std::max(parts_bytes(shape, step), shared_workspace_bytes(shape))
                                      : parts_bytes(shape, step);
}

/// The counters of steps 4 to 7, which reset themselves.
int64_t zeroed_bytes(const Shape& shape, int step) {
  return step > 3 && workspace_bytes(shape, step) > 0 ? kArrivalBytes : 0;
}

/// Keys and values come once for each query head, or once; partial results go out and come back.
double memory_bytes(const Shape& shape, int step) {
  const double once = compulsory_bytes(shape, Operation::decode);
  const double cache = 2.0 * double(shape.k_elements()) * double(size_of(shape.dtype));
  return once + (step == 1 ? (group_of(shape) - 1) * cache : 2.0 * double(parts_bytes(shape, step)));
}

//| ## From a step to its kernel
//|
//| Steps 1 to 3 are one kernel that differs in two numbers: how many query heads are rows of one tile, and into how many parts the keys are split. Steps 4 to 6 are another; a page table and a plan are data to it.
void attention(const Shape& shape, const Tensors& tensors, device::Stream stream, int step) {
  if (kSteps[step - 1].latent) return run_latent(shape, tensors, stream);
  device::with_type(shape.dtype, [&]<typename T>() {
    if constexpr (sizeof(T) == 2)  // with_type also knows float, which why_not refuses
      device::with_head_dim(shape.head_dim, [&]<int kHeadDim>() {
        switch (step) {
          case 1:
            return run_pack_gqa<T, kHeadDim>(shape, tensors, stream, 1, 1);
          case 2:
            return run_pack_gqa<T, kHeadDim>(shape, tensors, stream, group_of(shape), 1);
          case 3:
            return run_pack_gqa<T, kHeadDim>(shape, tensors, stream, group_of(shape), parts_of(shape));
          default:
            return run_ring<T, kHeadDim>(shape, tensors, stream, step == 6);
        }
      });
  });
}

}  // namespace

const Chapter kDecoding = {
    .number = 8,
    .name = "08_decoding",
    .title = "Decoding",
    .runs_on = device::Place::device,
    .steps = kSteps,
    .dtypes = kTypes,
    .gpu_shape = shape_of_cache(16, 32, 8, 8192, 128),
    .cpu_shape = shape_of_cache(2, 8, 2, 1000, 64),
    .operation = Operation::decode,
    .why_not = why_not,
    .workspace_bytes = workspace_bytes,
    .memory_bytes = memory_bytes,
    .attention = attention,
    .preface = nullptr,
    .zeroed_bytes = zeroed_bytes,
};

}  // namespace flashbook
