//| # Chapter 6's descriptor
//|
//| This file has nine steps, and chooses the fastest version of the kernel for a length. It runs on the host;
//| [launch.cuh](launch.cuh) has the launches and [version.cuh](../version.cuh) the versions.
#include "chapters/06_fp8/host/beside_steps.h"
#include "chapters/06_fp8/host/chapter.h"
#include "chapters/06_fp8/host/launch.cuh"
#include "chapters/06_fp8/host/quantise.h"
#include "common/device/dispatch.h"

namespace flashbook {
namespace {

using namespace fp8;

constexpr DType kTypes[] = {DType::e4m3};

constexpr int64_t kMaxGridX = 2147483647;

//| ## What cannot run
//|
//| A grid has at most 2^31 - 1 blocks in x. Block scales are the subject of steps 3 and 4. Of the other
//| steps, only step 9 accepts them, so that one step is correct in every case. Step 4 runs the kernel of step
//| 3: its own work is done beforehand, when Q and K are rotated.
std::string limits(const Spec& spec) {
  if (query_tiles(spec, 2 * kRowsPerWarpgroup) > kMaxGridX)
    return "batch * heads * seqlen / 128 is at most 2^31 - 1, the largest grid in x: give a smaller "
           "--batch";
  return "";
}

//| ## A version for a length
//|
//| From step 5 on a step is a family of versions: tiles of other sizes, V transposed in every block or once.
//| Which one is the fastest depends on the length, and the thresholds below were measured on an H200. A
//| version is a type, and what a step adds to it is a template around that type: `SumsByProduct<Traits>` is
//| any version with step 6's row sums. So a choice of tiles is written once for steps 5 and 6, and once for 7
//| and 8.
/// Lengths at which another version becomes faster (measured on an H200).
constexpr int kLongD128 = 2048, kShortD64 = 512, kShortD64Causal = 1024;

/// Calls `use` with the version of steps 5 and 6 for a head dimension, a mask and a length. `Of` turns it
/// into the version of the step.
template <template <typename> typename Of, int kHeadDim, bool kCausal, typename Use>
void with_tuned(const Sizes& sizes, const Use& use) {
  if constexpr (kHeadDim == 64) {
    // In short sequences, tiles of 192 queries waste more above the diagonal than tiles of 128.
    if (sizes.seqlen_q <= (kCausal ? kShortD64Causal : kShortD64))
      return use.template operator()<Of<ShortD64<kCausal ? 2 : 3, kCausal>>>();
  }
  if constexpr (kHeadDim == 128) {
    if (sizes.seqlen_k >= kLongD128) return use.template operator()<Of<LongD128<kCausal>>>();
  }
  use.template operator()<Of<Fastest<kHeadDim, kCausal>>>();
}

/// Step 5 or step 7, unchanged.
template <typename Traits>
using AsItIs = Traits;

template <typename Traits>
using SumsByLine = ByLine<SumsByProduct<Traits>>;

//| ## When to transpose V once
//|
//| Step 7 transposes each piece of V once, for all blocks, and blocks must then wait for each other's pieces.
//| A short sequence has few tiles of queries to share the work, and under a causal mask the first tiles need
//| little of V; there transposing in every block is faster.
/// The length from which it pays to transpose V once, rather than in every block that sees it: with a mask
/// the first tiles of queries wait for more of V. (Measured on an H200.)
template <bool kLine, int kHeadDim, bool kCausal>
constexpr int kOnceFrom = kHeadDim == 256           ? (kCausal ? 1024 : 1)
                          : kCausal                 ? 4096
                          : kLine&& kHeadDim == 128 ? 2048
                                                    : 1024;

/// Calls `use` with the version of step 7 for this shape, or of step 8 if kLine.
template <bool kLine, int kHeadDim, bool kCausal, typename Use>
void with_once(const Sizes& sizes, const Use& use) {
  const auto once = [&]<typename Traits>() {
    if constexpr (kLine)
      use.template operator()<ByLine<TransposedOnce<Traits>>>();
    else
      use.template operator()<TransposedOnce<Traits>>();
  };
  if constexpr (kHeadDim == 256) {
    // With the linear exponential, narrower tiles are faster if there are many.
    if (kLine && !kCausal && sizes.seqlen_k >= 4096) return once.template operator()<Fastest<256, false>>();
    if (sizes.seqlen_k >= kOnceFrom<kLine, 256, kCausal>)
      return once.template operator()<WideD256<kCausal>>();
    // The linear exponential is no faster here.
    return with_tuned<SumsByProduct, 256, kCausal>(sizes, use);
  } else {
    if (sizes.seqlen_k < kOnceFrom<kLine, kHeadDim, kCausal>)
      return kLine ? with_tuned<SumsByLine, kHeadDim, kCausal>(sizes, use)
                   : with_tuned<SumsByProduct, kHeadDim, kCausal>(sizes, use);
    if constexpr (kHeadDim == 64)
      return once.template operator()<Fastest<64, kCausal>>();
    else if constexpr (kLine && !kCausal)
      return once.template operator()<WideD128>();
    else if (kCausal || sizes.seqlen_k >= kLongD128)
      return once.template operator()<LongD128<kCausal>>();
    once.template operator()<Fastest<128, kCausal>>();
  }
}

//| ## When to promote sums
//|
//| Promotion takes time, and short rows do not need it: 1024 keys lose 0.6 % of O if V = 1. So up to that
//| length step 9 runs step 7's version, and beyond it the same version with promoted sums.
constexpr int kMaxUnpromoted = 1024;  ///< keys without promotion, at most

/// Calls `use` with the version of step 9 for this shape, without block scales.
template <int kHeadDim, bool kCausal, typename Use>
void with_promoted(const Sizes& sizes, const Use& use) {
  if (sizes.seqlen_k <= kMaxUnpromoted) return with_once<false, kHeadDim, kCausal>(sizes, use);
  if constexpr (kHeadDim == 256)
    use.template operator()<Promoted<TransposedOnce<NarrowD256<kCausal>>>>();
  else
    with_once<false, kHeadDim, kCausal>(sizes, [&]<typename Traits>() {
      // Without a mask, V is transposed once for rows of this length.
      if constexpr (kCausal || Traits::kTransposeOnce) use.template operator()<Promoted<Traits>>();
    });
}

/// Calls `use` with the version of step 9 for this shape, with block scales.
template <int kHeadDim, typename Use>
void with_promoted_blocks(const Sizes& sizes, const Use& use) {
  if (sizes.seqlen_k <= kMaxUnpromoted) return use.template operator()<BlockScaled<kHeadDim>>();
  use.template operator()<Promoted<LazyBlockScaled<kHeadDim>>>();
}

//| ## From a step to its version
//|
//| This is the only place that maps a step to its version. The workspace and the launch both use it, so they
//| cannot disagree.
/// Calls `use` with the version of a step.
template <int kStep, typename Use>
void with_version(const Spec& spec, const Use& use) {
  device::with_head_dim(spec.head_dim, [&]<int kHeadDim>() {
    if constexpr (kStep == 1)
      use.template operator()<Straight<kHeadDim>>();
    else if constexpr (kStep == 2)
      use.template operator()<Overlapped<kHeadDim>>();
    else if constexpr (kStep <= 4)
      use.template operator()<BlockScaled<kHeadDim>>();
    else if (kStep == 9 && spec.e4m3.scaling == Scaling::block)
      with_promoted_blocks<kHeadDim>(spec, use);
    else
      hopper::with_causal(spec, [&]<bool kCausal>() {
        if constexpr (kStep == 5) with_tuned<AsItIs, kHeadDim, kCausal>(spec, use);
        if constexpr (kStep == 6) with_tuned<SumsByProduct, kHeadDim, kCausal>(spec, use);
        if constexpr (kStep == 7 || kStep == 8) with_once<kStep == 8, kHeadDim, kCausal>(spec, use);
        if constexpr (kStep == 9) with_promoted<kHeadDim, kCausal>(spec, use);
      });
  });
}

/// Counters and, from step 7 on, the transposed V.
template <int kStep>
int64_t workspace(const Spec& spec) {
  int64_t bytes = 0;
  with_version<kStep>(spec, [&]<typename Traits>() { bytes = WorkspaceLayout<Traits>(spec).bytes(); });
  return bytes;
}

template <int kStep>
void run_step(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  with_version<kStep>(spec, [&]<typename Traits>() { run<Traits>(spec, tensors, stream); });
}

template <int kStep>
constexpr Step row(const char* slug, const char* name, const char* idea) {
  constexpr Features kAccepts = Feature::causal | Feature::strides;
  return {.slug = slug,
          .name = name,
          .idea = idea,
          .operation = Operation::forward,
          .accepts = kStep == 3 || kStep == 4 || kStep == 9 ? kAccepts | Feature::block_scales : kAccepts,
          .needs = Feature::e4m3,
          .run = run_step<kStep>,
          .limits = limits,
          .workspace = workspace<kStep>};
}

constexpr Step kSteps[] = {
    row<1>(
        "straight", "FP8 straight",
        "Products of e4m3 tiles, V transposed byte by byte by the producer, keys permuted so that P needs no "
        "shuffle."),
    row<2>(
        "overlapped", "V transposed by matrices",
        "V transposed by ldmatrix, byte permutations and stmatrix, chapter 5's overlap, and an offset that "
        "uses e4m3's range for P."),
    row<3>("block_scales", "block scales",
           "A scale for each tile of Q, K and V, the values' as a bias of the scores."),
    row<4>("hadamard", "incoherent processing",
           "Q and K times a random orthogonal matrix before they are quantised; the attention is that of "
           "step 3."),
    row<5>("persistent", "fast",
           "Chapter 5's last step: persistent blocks, lazy rescaling, loops split by mask, stores by TMA."),
    row<6>("row_sums", "row sums by a product",
           "P times a tile of ones, next to P V; the softmax itself sums nothing."),
    row<7>(
        "transpose_once", "V transposed once",
        "Blocks share the transposition: each piece of V is transposed by one of them, into the workspace."),
    row<8>("linear_exp", "exponentials by a line",
           "The encoding of P in e4m3 is nearly linear in the score: no ex2, no rounding."),
    row<9>("promoted_sums", "promoted sums",
           "Step 7, and in long rows O leaves the tensor cores every 960 keys, for a running sum in shared "
           "memory."),
};

}  // namespace

const Chapter kFp8 = {
    .number = 6,
    .name = "06_fp8",
    .title = "FP8",
    .steps = kSteps,
    .dtypes = kTypes,
    .gpu_spec = spec_for_gpu(DType::e4m3),
    .cpu_spec = spec_for_simulator(DType::e4m3),
};

//| ## The quantiser
//|
//| The quantiser converts 16- or 32-bit Q, K and V to 8 bits: a
//| scale for a tensor, for a group of heads or for a tile, Q and K rotated if requested, and the column means
//| of K and V removed.
int64_t quantise_workspace_bytes(const Spec& spec) {
  return spec.e4m3.mean_subtracted ? mean_workspace_bytes(spec.k_columns()) : 0;
}

void quantise_fp8(const Spec& spec, DType from, const void* q, const void* k, const void* v,
                  const Quantised& to, bool incoherent, uint32_t seed, device::Stream stream) {
  const auto run = [&](TensorId tensor, const void* values, void* encoded, float* scales, int heads, int rows,
                       int rows_of_block, bool rotated, float* means) {
    const int heads_of_scale =
        spec.e4m3.scaling == Scaling::tensor ? spec.batch * heads : heads / spec.kv_heads;
    quantise({.dtype = from,
              .batch = spec.batch,
              .heads = heads,
              .rows = rows,
              .head_dim = spec.head_dim,
              .rows_of_scale = spec.e4m3.scaling == Scaling::block ? rows_of_block : 0,
              .heads_of_scale = heads_of_scale,
              .rotation = rotated ? std::optional<uint64_t>(seed) : std::nullopt,
              .strides = spec.strides(tensor),
              .values = values,
              .encoded = encoded,
              .scales = scales,
              .means = spec.e4m3.mean_subtracted ? means : nullptr,
              .workspace = to.workspace},
             stream);
  };
  run(TensorId::q, q, to.q, to.q_scale, spec.heads, spec.seqlen_q, kQueriesPerScale, incoherent, nullptr);
  run(TensorId::k, k, to.k, to.k_scale, spec.kv_heads, spec.seqlen_k, kKeysPerScale, incoherent, to.k_mean);
  run(TensorId::v, v, to.v, to.v_scale, spec.kv_heads, spec.seqlen_k, kKeysPerScale, false, to.v_mean);
}

}  // namespace flashbook
