//| # Chapter 8's descriptor
//|
//| The chapter has twelve decoding steps: few queries, a long cache. This file runs on the host;
//| [launch.cuh](launch.cuh) has the launches.
#include "chapters/08_decoding/host/chapter.h"
#include "chapters/08_decoding/host/e4m3_cache.h"
#include "chapters/08_decoding/host/latent.h"
#include "chapters/08_decoding/host/rules.h"
#include "chapters/08_decoding/host/shared_prefix.cuh"
#include "chapters/08_decoding/host/warpgroup.h"
#include "common/attention/cost.h"
#include "common/device/dispatch.h"
#include "common/features/pages/pages.h"

namespace flashbook {
namespace decoding {

//| ## Rules
//|
//| A window that is not the causal mask, functions on scores, and sinks are [rules](../rules.cuh), separate
//| kernels in `rules_d64.cu` to `rules_d256.cu`.
bool has_rules(const Spec& spec) {
  const Window& window = spec.visibility.window;
  return window.left >= 0 || window.right > 0 || spec.score.softcap != 0 || !spec.score.alibi.empty() ||
         !spec.score.sinks.empty() || !spec.paging.paddings.empty() || spec.batching.packed_queries > 0;
}

}  // namespace decoding
namespace {

using namespace decoding;

/// Returns the shape for one new token in each of 16 sequences of 8192 tokens: Llama-3-8B's attention.
Spec spec_of_cache(int batch, int heads, int kv_heads, int seqlen_k, int head_dim) {
  Spec spec = square_spec(batch, heads, 1, head_dim, DType::bf16);
  spec.kv_heads = kv_heads, spec.seqlen_k = seqlen_k;
  return spec;
}

constexpr int64_t kMaxGridX = 2147483647;
constexpr int kMaxKeys = 1 << 30;
constexpr int kRowsPerSwizzle = 8;  // rows after which the pattern repeats

int group_of(const Sizes& sizes) { return sizes.heads / sizes.kv_heads; }

//| ## What cannot run
//|
//| The table of steps below lists the features that each accepts. The remaining limits are numbers: the rows
//| of a page, the keys that a kernel can count. `softcap` has one, since c * tanh(s / c) is 2c / (1 +
//| e^(-2s/c)) - c in the kernel, whose float32 is good to c * 2^-22.
template <int kStep>
std::string limits(const Spec& spec) {
  if (spec.q_rows() > kMaxGridX)
    return "batch * heads * seqlen is " + std::to_string(spec.q_rows()) +
           ", and chapter 8 takes at most 2^31 - 1: give a smaller --batch";
  if (spec.score.softcap > 1024)
    return "chapter 8 takes a softcap up to 1024: a larger one hardly changes scores, so leave it out";
  if (has_rules(spec) && std::max(spec.seqlen_q, spec.seqlen_k) > kMaxKeys)
    return "chapter 8 takes at most 2^30 queries and keys under a window or a function: give fewer";
  if (kStep >= 11) return limits_of_sparse(spec);
  const int rows = spec.paging.rows;
  if (rows == 0) return "";
  if (kStep == 7) return limits_of_latent_pages(spec);
  const bool several = rows < spec.seqlen_k;  // pages of a sequence
  if (several && !spec.paging.paddings.empty())
    return "paddings need a contiguous cache, or one page per sequence: give pages of seqlen_k rows, or "
           "none";
  if (several && !std::has_single_bit(unsigned(rows)))
    return "pages must have a power of two of rows here, or hold a whole sequence: give such a number";
  if (spec.seqlen_k > kMaxKeys) return "pages hold at most 2^30 keys of a sequence: give fewer";
  if (kStep == 8 && spec.e4m3.scaling == Scaling::block && rows < kRowsPerMma)
    return "a scale per page needs pages of 16 keys or more: give such pages, or a scale per head";
  if (kStep == 10 && rows < kRowsPerSwizzle)
    return "pages of " + std::to_string(rows) +
           " rows are not supported by this step: use pages of 8 rows or more, or --step boxes";
  return "";
}

int64_t warpgroup_bytes(const Spec& spec) {
  return ring_workspace_bytes(spec, warpgroup_launch(spec, false));
}

//| ## The workspace
//|
//| If the keys are split, it holds partial results: a row of O in float32 and its log-sum-exp for each query
//| and part. From step 4 on, it also holds counters of arrived blocks. They must be zero before the first
//| call, and the last block of a sequence resets its counter.
int64_t parts_bytes(const Spec& spec) {
  const int parts = parts_of(spec);
  return parts == 1 ? 0 : partial_bytes(spec, parts);
}

template <int kStep>
int64_t ring_bytes(const Spec& spec) {
  return ring_workspace_bytes(spec, ring_launch(spec, kStep == 6));
}

/// Returns the workspace for several sequences, which is larger because they may share a prefix.
int64_t shared_bytes(const Spec& spec) {
  return spec.batch > 1 ? std::max(ring_bytes<6>(spec), shared_workspace_bytes(spec)) : ring_bytes<6>(spec);
}

/// Returns the counters of steps 4 to 7, which reset themselves, at the beginning of a workspace.
template <int64_t (*kWorkspace)(const Spec&)>
int64_t counters(const Spec& spec) {
  return kWorkspace(spec) > 0 ? kArrivalBytes : 0;
}

/// Counts keys and values once per query head.
double memory_by_head(const Spec& spec) {
  const double cache = 2.0 * double(spec.k_elements()) * double(size_of(spec.dtype));
  return compulsory_bytes(spec, Operation::decode) + (group_of(spec) - 1) * cache;
}

/// Counts keys and values once, and partial results as written and read.
template <int64_t (*kParts)(const Spec&)>
double memory(const Spec& spec) {
  return compulsory_bytes(spec, Operation::decode) + 2.0 * double(kParts(spec));
}

//| ## From a step to its kernel
//|
//| Steps 1 to 3 are one kernel that differs in two numbers: how many query heads are rows of one tile, and
//| into how many parts the keys are split. Steps 4 to 6 are another; the page table and the plan are its
//| inputs. Step 9 is the same kernel with other producers, and uses step 6's plan.
template <int kStep>
void run(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  const int columns = tile_columns(spec.head_dim);
  if (kStep >= 4 && (has_rules(spec) || columns != spec.head_dim))
    return device::with_head_dim(columns, [&]<int kHeadDim>() {
      run_with_rules<kHeadDim>(spec, tensors, stream, kStep >= 6, kStep >= 9);
    });
  device::with_16_bit_type_and_head_dim(spec.dtype, spec.head_dim, [&]<typename T, int kHeadDim>() {
    switch (kStep) {
      case 1:
        return run_pack_gqa<T, kHeadDim>(spec, tensors, stream, 1, 1);
      case 2:
        return run_pack_gqa<T, kHeadDim>(spec, tensors, stream, group_of(spec), 1);
      case 3:
        return run_pack_gqa<T, kHeadDim>(spec, tensors, stream, group_of(spec), parts_of(spec));
      default:
        return run_ring<T, kHeadDim>(spec, tensors, stream, kStep >= 6, kStep >= 9);
    }
  });
}

void run_step10(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  device::with_head_dim(tile_columns(spec.head_dim),
                        [&]<int kHeadDim>() { run_warpgroups<kHeadDim>(spec, tensors, stream); });
}

/// Returns 0: step 3's merge also checks parts without keys, and ignores their values.
int64_t no_counters(const Spec&) { return 0; }

//| ## The steps
//|
//| Steps 4 to 6, 9 and 10 share their rules: windows, functions on scores, paddings and packed queries. Step
//| 5 introduces pages. Steps 1 and 2 have one part per sequence anyway.
constexpr Features kDense = Feature::causal | Feature::lengths | Feature::strides;
constexpr Features kRules = Feature::any_head_dim | Feature::window | Feature::softcap | Feature::alibi |
                            Feature::sinks | Feature::paddings | Feature::packed_queries;

template <int kStep>
constexpr Features accepted() {
  if (kStep <= 2) return kDense | Feature::unsplit;
  if (kStep == 3) return kDense;
  if (kStep == 4) return kDense | Feature::unsplit | kRules;
  if (kStep == 7) return kDense | Feature::pages;
  if (kStep >= 11) return Feature::strides | Feature::pages;
  if (kStep == 8) return kDense | Feature::unsplit | Feature::pages | Feature::block_scales;
  return kDense | Feature::unsplit | Feature::pages | kRules;
}

/// Steps 4 to 12 have counters at the beginning of their workspace.
template <int kStep, int64_t (*kWorkspace)(const Spec&), int64_t (*kParts)(const Spec&) = kWorkspace>
constexpr Step row(const char* slug, const char* name, const char* idea,
                   void (*run)(const Spec&, const Tensors&, device::Stream)) {
  Features needs;
  if (kStep == 7) needs = Feature::latent;
  if (kStep == 8) needs = Feature::e4m3_cache;
  if (kStep == 11) needs = Feature::latent | Feature::indices;
  if (kStep == 12) needs = Feature::latent | Feature::indices | Feature::e4m3_cache;
  return {.slug = slug,
          .name = name,
          .idea = idea,
          .operation = Operation::decode,
          .accepts = accepted<kStep>(),
          .needs = needs,
          .run = run,
          .limits = limits<kStep>,
          .workspace = kWorkspace,
          .memory = memory<kParts>,
          .zeroed = counters<kWorkspace>};
}

constexpr Step kSteps[] = {
    {.slug = "per_head",
     .name = "chapter 5's way",
     .idea = "One block per query head, which reads the keys and values of its key head from the first to "
             "the last.",
     .operation = Operation::decode,
     .accepts = accepted<1>(),
     .run = run<1>,
     .limits = limits<1>,
     .memory = memory_by_head},
    {.slug = "pack_gqa",
     .name = "a group in one tile",
     .idea = "The query heads that share a key head are rows of one tile, so keys and values are read once.",
     .operation = Operation::decode,
     .accepts = accepted<2>(),
     .run = run<2>,
     .limits = limits<2>},
    {.slug = "split_kv",
     .name = "keys split over blocks",
     .idea = "Every block takes a part of the keys, and a second kernel merges the partial results.",
     .operation = Operation::decode,
     .accepts = accepted<3>(),
     .run = run<3>,
     .limits = limits<3>,
     .workspace = parts_bytes,
     .memory = memory<parts_bytes>,
     .zeroed = no_counters},
    row<4, ring_bytes<4>>(
        "ring", "a deep ring",
        "A warp keeps a ring of narrow tiles in shared memory filled, and the last warp to arrive merges.",
        run<4>),
    row<5, ring_bytes<5>>(
        "paged", "pages",
        "A table lists the pages that hold a sequence's keys, and TMA assembles each tile page by page.",
        run<5>),
    row<6, shared_bytes, ring_bytes<6>>(
        "equal_work", "equal work",
        "All tiles of keys are numbered and distributed evenly, wherever a sequence ends.", run<6>),
    row<7, latent_workspace_bytes>(
        "latent", "latent attention",
        "Keys of 576 elements are also the values, and two warpgroups hold half of the output each.",
        run_latent),
    row<8, shared_bytes, ring_bytes<6>>(
        "e4m3_cache", "a cache in e4m3",
        "Elements of keys and values take one byte, with a scale, and are converted to f16 for tensor cores.",
        run_e4m3_cache),
    row<9, shared_bytes, ring_bytes<6>>(
        "boxes", "boxes of rows",
        "Tensor maps load many keys of one head at once, whatever the distance between them.", run<9>),
    row<10, warpgroup_bytes>("warpgroup", "a warpgroup's rows",
                             "Several tokens of a group fill the rows of wgmma, which reads each key once.",
                             run_step10),
    row<11, sparse_workspace_bytes>(
        "sparse_prefill", "lists of latents",
        "Producers gather the latents that each token lists, and two warpgroups share their scores.",
        run_sparse),
    row<12, sparse_workspace_bytes>("sparse_decode", "lists of latents in e4m3",
                                    "Producers convert the latents that they gather to bf16 by moving bits.",
                                    run_sparse),
};

}  // namespace

const Chapter kDecoding = {
    .number = 8,
    .name = "08_decoding",
    .title = "Decoding",
    .steps = kSteps,
    .gpu_spec = spec_of_cache(16, 32, 8, 8192, 128),
    .cpu_spec = spec_of_cache(2, 8, 2, 1000, 64),
};

}  // namespace flashbook
