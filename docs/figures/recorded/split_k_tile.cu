/// \file
/// Chapter 3's split-K kernel on the tiles of chapter 4's first steps: 64 queries, 64 keys, four warps. Its
/// trace is one half of the experiment in chapter 4's text (traced_tables.py).
#include "chapters/03_flash_attention_1/host/launch.cuh"
#include "common/app/profile.h"
#include "common/device/dispatch.h"

namespace flashbook {
namespace {

constexpr int kTile = 64, kWarps = 4;
constexpr DType kTypes[] = {DType::f16, DType::bf16};

std::string limits(const Spec& spec) { return spec.head_dim == 256 ? "give head_dim 64 or 128" : ""; }

void run_tile(const Spec& spec, const Tensors& t, device::Stream stream) {
  device::with_16_bit_type(spec.dtype, [&]<typename T>() {
    if (spec.head_dim == 64)
      fa1::run_split_k<T, fa1::KernelTraits<fa1::SplitKSizes{
                              .head_dim = 64, .queries = kTile, .keys = kTile, .warps = kWarps}>>(spec, t,
                                                                                                  stream);
    else
      fa1::run_split_k<T, fa1::KernelTraits<fa1::SplitKSizes{
                              .head_dim = 128, .queries = kTile, .keys = kTile, .warps = kWarps}>>(spec, t,
                                                                                                   stream);
  });
}

constexpr Step kSteps[] = {{.slug = "split_k",
                            .name = "split-K",
                            .idea = "Four warps share the 64 keys of a tile.",
                            .operation = Operation::forward,
                            .accepts = Feature::causal,
                            .run = run_tile,
                            .limits = limits}};

const Spec kSpec = {{.batch = 1,
                     .heads = 1,
                     .kv_heads = 1,
                     .seqlen_q = kTile,
                     .seqlen_k = kTile,
                     .head_dim = 64,
                     .scale = default_scale(64)}};

const Chapter kSplitKTile = {
    .number = 3,
    .name = "split_k_tile",
    .title = "Split-K on tiles of 64 by 64",
    .runs_on = device::Place::device,
    .steps = kSteps,
    .dtypes = kTypes,
    .gpu_spec = kSpec,
    .cpu_spec = kSpec,
};

}  // namespace
}  // namespace flashbook

int main(int argc, char** argv) { return flashbook::profile_chapter(argc, argv, flashbook::kSplitKTile); }
