#include "chapters/06_fp8/chapter.h"
#include "chapters/06_fp8/launch.cuh"
#include "common/attention/cost.h"
#include "common/device/dispatch.h"

namespace flashbook {
namespace {

using namespace fp8;

constexpr Step kSteps[] = {
    {"FP8 straight",
     "Products of e4m3 tiles, V transposed byte by byte by the producer, keys permuted so that P needs no "
     "shuffle."},
    {"transposition overlapped",
     "V turned by ldmatrix, byte permutations and stmatrix, chapter 5's overlap, and an offset that uses "
     "e4m3's "
     "range for P."},
    {"block scales", "A scale for each tile of Q, K and V, the values' as a bias of the scores."},
    {"incoherent processing",
     "Q and K times a random orthogonal matrix before they are quantised; the attention is that of step 3."},
    {"fast", "Chapter 5's last step: blocks that stay, lazy rescaling, loops split by mask, stores by TMA."},
};
constexpr DType kTypes[] = {DType::e4m3};

constexpr int64_t kMaxGridX = 2147483647;
constexpr int kFirstBlockScaled = 3, kLastBlockScaled = 4;

std::string why_not(const Shape& shape, int step) {
  if (shape.dtype != DType::e4m3) return "chapter 6 takes e4m3: choose it with --dtype";
  if (shape.scaling == Scaling::block && (step < kFirstBlockScaled || step > kLastBlockScaled))
    return "this step has one scale a head: steps 3 and 4 take --scaling block, others tensor and head";
  if (query_tiles(shape, 2 * kRowsOfWarpgroup) > kMaxGridX)
    return "batch * heads * seqlen / 128 is at most 2^31 - 1, what a grid has in x: split the batch with "
           "--batch";
  return "";
}

/// Step 5 under a causal mask hands out tiles by a counter.
int64_t workspace_bytes(const Shape& shape, int step) { return step == 5 && shape.causal ? sizeof(int) : 0; }

double memory_bytes(const Shape& shape, int) { return compulsory_bytes(shape); }

void attention(const Shape& shape, const Tensors& tensors, device::Stream stream, int step) {
  device::with_head_dim(shape.head_dim, [&]<int kHeadDim>() {
    switch (step) {
      case 1:
        return run<Straight<kHeadDim>>(shape, tensors, stream);
      case 2:
        return run<Overlapped<kHeadDim>>(shape, tensors, stream);
      case 3:
      case 4:
        return run<BlockScaled<kHeadDim>>(shape, tensors, stream);
      default:
        return shape.causal ? run<Fastest<kHeadDim, true>>(shape, tensors, stream)
                            : run<Fastest<kHeadDim, false>>(shape, tensors, stream);
    }
  });
}

}  // namespace

const Chapter kFp8 = {
    .number = 6,
    .name = "06_fp8",
    .title = "FP8",
    .runs_on = device::Place::device,
    .steps = kSteps,
    .dtypes = kTypes,
    .gpu_shape = {.batch = 4,
                  .heads = 16,
                  .kv_heads = 16,
                  .seqlen_q = 4096,
                  .seqlen_k = 4096,
                  .head_dim = 128,
                  .dtype = DType::e4m3,
                  .scale = default_scale(128)},
    .cpu_shape = {.batch = 1,
                  .heads = 2,
                  .kv_heads = 2,
                  .seqlen_q = 256,
                  .seqlen_k = 256,
                  .head_dim = 64,
                  .dtype = DType::e4m3,
                  .scale = default_scale(64)},
    .why_not = why_not,
    .workspace_bytes = workspace_bytes,
    .memory_bytes = memory_bytes,
    .attention = attention,
    .preface = nullptr,
};

}  // namespace flashbook
