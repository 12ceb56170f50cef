/// \file
/// Chapter 3's split-K kernel on the tiles of chapter 4's first steps: 64 queries, 64 keys, four warps.
/// Traced, it is one half of the experiment in chapter 4's text (split_tables.py).
#include <numbers>

#include "chapters/03_flash_attention_1/step3_split_k.cuh"
#include "common/app/profile.h"
#include "common/device/dispatch.h"
#include "common/device/launch.h"

namespace flashbook {
namespace {

constexpr int kTile = 64, kWarps = 4;
constexpr DType kTypes[] = {DType::f16, DType::bf16};

std::string why_not(const Shape& shape) {
  return shape.head_dim == 256 || shape.dtype == DType::f32 ? "head_dim 64 or 128, f16 or bf16" : "";
}

void run_tile(const Shape& shape, const Tensors& t, device::Stream stream) {
  const fa1::Problem problem = {shape.seqlen_q, shape.seqlen_k, shape.heads / shape.kv_heads, shape.causal(),
                                shape.scale * std::numbers::log2e_v<float>};
  const auto run = [&]<typename T, int kHeadDim>() {
    using Traits = fa1::KernelTraits<kHeadDim, kTile, kTile, kWarps>;
    device::launch(fa1::split_k<T, Traits>,
                   dim3(unsigned(shape.seqlen_q + kTile - 1) / kTile, unsigned(shape.batch * shape.heads)),
                   dim3(Traits::kThreads), sizeof(fa1::SplitKTiles<T, Traits>), stream,
                   static_cast<const T*>(t.q), static_cast<const T*>(t.k), static_cast<const T*>(t.v),
                   static_cast<T*>(t.o), t.lse, problem);
  };
  device::with_16_bit_type(shape.dtype, [&]<typename T>() {
    if (shape.head_dim == 64)
      run.template operator()<T, 64>();
    else
      run.template operator()<T, 128>();
  });
}

constexpr Step kSteps[] = {
    {"split-K", "Four warps share the 64 keys of a tile.", Operation::forward, why_not, nullptr, run_tile}};

const Shape kShape = {.batch = 1,
                      .heads = 1,
                      .kv_heads = 1,
                      .seqlen_q = kTile,
                      .seqlen_k = kTile,
                      .head_dim = 64,
                      .scale = default_scale(64)};

const Chapter kSplitKTile = {
    .number = 3,
    .name = "split_k_tile",
    .title = "Split-K on tiles of 64 by 64",
    .runs_on = device::Place::device,
    .steps = kSteps,
    .dtypes = kTypes,
    .gpu_shape = kShape,
    .cpu_shape = kShape,
};

}  // namespace
}  // namespace flashbook

int main(int argc, char** argv) { return flashbook::profile_chapter(argc, argv, flashbook::kSplitKTile); }
