#include "chapters/03_flash_attention_1/host/blocks.h"
#include "chapters/03_flash_attention_1/host/chapter.h"
#include "chapters/03_flash_attention_1/host/launch.cuh"
#include "common/device/dispatch.h"

namespace flashbook {
namespace {

using Element = __nv_bfloat16;

constexpr std::size_t kMaxSharedBytes = 227 * 1024;  // the limit of an H100 or H200, the largest of any GPU
constexpr DType kType = DType::bf16;
constexpr const char* kOtherType = "the sweep over block sizes takes bf16: give --dtype bf16";

template <int kHeadDim, int kBlock>
constexpr std::size_t kTileBytes = sizeof(fa1::Tiles<Element, kHeadDim, kBlock>);

template <int kBlock>
std::size_t shared_bytes(const Spec& spec) {
  std::size_t bytes = 0;
  device::with_head_dim(spec.head_dim, [&]<int kHeadDim>() { bytes = kTileBytes<kHeadDim, kBlock>; });
  return bytes;
}

template <int kBlock>
std::string limits(const Spec& spec) {
  if (spec.dtype != kType) return kOtherType;
  if (const std::string reason = kFlashAttention1.refusal("queries_outside", spec); !reason.empty())
    return reason;
  const auto granted = std::size_t(device::granted_shared_bytes());
  if (const std::size_t bytes = shared_bytes<kBlock>(spec); bytes > granted)
    return "does not fit: tiles of " + std::to_string(kBlock) + " rows take " + std::to_string(bytes / 1024) +
           " KB of shared memory, a block has " + std::to_string(granted / 1024);
  return "";
}

template <int kBlock>
void run(const Spec& spec, const Tensors& t, device::Stream stream) {
  device::with_head_dim(spec.head_dim, [&]<int kHeadDim>() {
    if constexpr (kTileBytes<kHeadDim, kBlock> <=
                  kMaxSharedBytes)  // no kernel is compiled where they do not fit
      fa1::run_queries_outside<Element, kHeadDim, kBlock>(spec, t, stream);
  });
}

/// Returns the bytes requested, which depend on the size of the tiles.
template <int kBlock>
double memory(const Spec& spec) {
  return fa1::bytes_queries_outside(spec, kBlock, kBlock);
}

template <int kBlock>
constexpr Step kStep = {.slug = "queries_outside",
                        .name = "queries outside, keys inside",
                        .idea = "Step 2 with tiles of another size.",
                        .operation = Operation::forward,
                        .accepts = Feature::causal,
                        .run = run<kBlock>,
                        .limits = limits<kBlock>,
                        .memory = memory<kBlock>,
                        .requested = memory<kBlock>};

template <int kBlock>
BlockSize block_size() {
  Chapter chapter = kFlashAttention1;
  chapter.steps = std::span(&kStep<kBlock>, 1);
  chapter.dtypes = std::span(&kType, 1);
  return {"b" + std::to_string(kBlock), "tiles of " + std::to_string(kBlock), chapter, shared_bytes<kBlock>};
}

// ---- step 3 on chapter 4's tiles: one idea more a row ----

template <int kHeadDim>
using Overlapping = fa1::KernelTraits<fa1::SplitKSizes{.head_dim = kHeadDim, .queries = 64, .keys = 64}>;

/// Computes nothing while a copy is in flight.
template <int kHeadDim>
struct Waiting : Overlapping<kHeadDim> {
  static constexpr bool kOverlaps = false;
};

template <template <int> typename Traits>
std::size_t split_k_bytes(const Spec& spec) {
  return spec.head_dim == 64 ? sizeof(fa1::SplitKTiles<Element, Traits<64>>)
                             : sizeof(fa1::SplitKTiles<Element, Traits<128>>);
}

std::string limits_of_split_k(const Spec& spec) {
  if (spec.dtype != kType) return kOtherType;
  if (spec.head_dim == 256) return "chapter 4's tiles of 64 by 64 are for head_dim 64 and 128";
  return kFlashAttention1.refusal("split_k", spec);
}

template <template <int> typename Traits>
void run_split_k(const Spec& spec, const Tensors& t, device::Stream stream) {
  if (spec.head_dim == 64)
    fa1::run_split_k<Element, Traits<64>>(spec, t, stream);
  else
    fa1::run_split_k<Element, Traits<128>>(spec, t, stream);
}

template <template <int> typename Traits>
constexpr Step kSplitK = {.slug = "split_k",
                          .name = "split-K",
                          .idea = "Step 3 with tiles of 64 by 64.",
                          .operation = Operation::forward,
                          .accepts = Feature::causal,
                          .run = run_split_k<Traits>,
                          .limits = limits_of_split_k};

template <template <int> typename Traits>
BlockSize split_k_size(std::string name, std::string label) {
  Chapter chapter = kFlashAttention1;
  chapter.steps = std::span(&kSplitK<Traits>, 1);
  chapter.dtypes = std::span(&kType, 1);
  return {std::move(name), std::move(label), chapter, split_k_bytes<Traits>};
}

}  // namespace

std::span<const BlockSize> flash_attention_1_block_sizes() {
  static const BlockSize sizes[] = {
      block_size<16>(),
      block_size<32>(),
      block_size<64>(),
      block_size<96>(),
      block_size<128>(),
      split_k_size<Waiting>("split_k_64x64_waiting", "split-K, 64 by 64, every copy waited for"),
      split_k_size<Overlapping>("split_k_64x64", "split-K, 64 by 64")};
  return sizes;
}

}  // namespace flashbook
