#include <numbers>

#include "chapters/03_flash_attention_1/host/blocks.h"
#include "chapters/03_flash_attention_1/host/chapter.h"
#include "chapters/03_flash_attention_1/host/traffic.h"
#include "chapters/03_flash_attention_1/step2_queries_outside.cuh"
#include "common/device/dispatch.h"
#include "common/device/launch.h"

namespace flashbook {
namespace {

using Element = __nv_bfloat16;

constexpr std::size_t kMaxSharedBytes = 227 * 1024;  // what an H100 or H200 grants a block
constexpr DType kType = DType::bf16;

template <int kHeadDim, int kBlock>
constexpr std::size_t kTileBytes = sizeof(fa1::Tiles<Element, kHeadDim, kBlock>);

template <int kBlock>
std::size_t shared_bytes(const Shape& shape) {
  std::size_t bytes = 0;
  device::with_head_dim(shape.head_dim, [&]<int kHeadDim>() { bytes = kTileBytes<kHeadDim, kBlock>; });
  return bytes;
}

template <int kBlock>
std::string why_not(const Shape& shape) {
  if (shape.dtype != kType) return "the sweep over block sizes takes bf16: choose it with --dtype";
  if (const std::string reason = kFlashAttention1.step(2).why_not(shape); !reason.empty()) return reason;
  if (const std::size_t bytes = shared_bytes<kBlock>(shape); bytes > kMaxSharedBytes)
    return "does not fit: tiles of " + std::to_string(kBlock) + " rows take " + std::to_string(bytes / 1024) +
           " KB of shared memory, a block has 227";
  return "";
}

/// Calls body.operator()<kHeadDim>() if the tiles fit; no kernel is compiled where they do not.
template <int kBlock, typename Body>
void with_fitting_head_dim(int head_dim, Body body) {
  device::with_head_dim(head_dim, [&]<int kHeadDim>() {
    if constexpr (kTileBytes<kHeadDim, kBlock> <= kMaxSharedBytes) body.template operator()<kHeadDim>();
  });
}

template <int kBlock>
void run(const Shape& shape, const Tensors& t, device::Stream stream) {
  const fa1::Problem problem = {shape.seqlen_q, shape.seqlen_k, shape.heads / shape.kv_heads, shape.causal(),
                                shape.scale * std::numbers::log2e_v<float>};
  const dim3 grid(fa1::tiles_of(shape.seqlen_q, kBlock), shape.batch * shape.heads);
  with_fitting_head_dim<kBlock>(shape.head_dim, [&]<int kHeadDim>() {
    device::launch(fa1::queries_outside<Element, kHeadDim, kBlock>, grid, dim3(fa1::kThreads),
                   kTileBytes<kHeadDim, kBlock>, stream, static_cast<const Element*>(t.q),
                   static_cast<const Element*>(t.k), static_cast<const Element*>(t.v),
                   static_cast<Element*>(t.o), t.lse, problem);
  });
}

/// Bytes asked for, which is what the size of the tiles decides.
template <int kBlock>
double memory(const Shape& shape) {
  return fa1::bytes_queries_outside(shape, kBlock, kBlock);
}

template <int kBlock>
constexpr Step kStep = {"queries outside, keys inside",
                        "Step 2 with tiles of another size.",
                        Operation::forward,
                        why_not<kBlock>,
                        nullptr,
                        run<kBlock>,
                        memory<kBlock>,
                        memory<kBlock>};

template <int kBlock>
BlockSize block_size() {
  Chapter chapter = kFlashAttention1;
  chapter.steps = std::span(&kStep<kBlock>, 1);
  chapter.dtypes = std::span(&kType, 1);
  return {kBlock, chapter, shared_bytes<kBlock>};
}

}  // namespace

std::span<const BlockSize> flash_attention_1_block_sizes() {
  static const BlockSize sizes[] = {block_size<16>(), block_size<32>(), block_size<64>(), block_size<96>(),
                                    block_size<128>()};
  return sizes;
}

}  // namespace flashbook
