//| # Chapter 9's descriptor
//|
//| The chapter has five forward steps, two gradient steps and one that reads a cache, each with the masks
//| that it supports. This file runs on the host. The kernels are compiled in separate files, `step1.cu` to
//| `step6_d256.cu`, so that a change to one policy does not compile the others; [launch.cuh](launch.cuh) and
//| [backward_launch.cuh](backward_launch.cuh) have the launches.
#include <bit>

#include "chapters/09_masks/host/chapter.h"
#include "chapters/09_masks/host/steps.h"
#include "common/attention/cost.h"
#include "common/device/dispatch.h"
#include "common/hopper/launch.h"

namespace flashbook {
namespace {

using namespace masks;

enum { kPairs = 1, kPacked, kRanges, kColumns, kFunctions, kGradient, kInTurns, kPrompts };

constexpr int kMaxRows = 1 << 30;  // Band::kNoLimit

//| ## What a step accepts
//|
//| Visibility is one value, a `Visibility`, with many parts. All steps except the last support ranges
//| (windows, prefixes, documents), and each step adds another kind. Steps 6 and 7 take the masks of
//| steps 1 to 5, and a bias has its own gradient there, which a caller may request (`Tensors::d_bias`); this
//| program does not. Step 8 reads a cache; the only rule it takes is a window.
constexpr Features kRangeMasks = Feature::causal | Feature::window | Feature::sink_keys | Feature::prefix |
                                 Feature::documents | Feature::strides | Feature::any_head_dim;
constexpr Features kScores = Feature::softcap | Feature::alibi | Feature::bias | Feature::dropout;

template <int kStep>
constexpr Features accepted() {
  switch (kStep) {
    case kPairs:
      return kRangeMasks | Feature::pairs;
    case kColumns:
      return kRangeMasks | Feature::intervals;
    case kFunctions:
      return kRangeMasks | Feature::blocks | kScores;
    case kGradient:
    case kInTurns:
      return kRangeMasks | Feature::value_dim | Feature::pairs | Feature::intervals | Feature::blocks |
             kScores;
    case kPrompts:
      return Feature::causal | Feature::window | Feature::lengths | Feature::pages | Feature::packed_queries |
             Feature::unsplit | Feature::strides | Feature::any_head_dim;
    default:
      return kRangeMasks | Feature::value_dim;
  }
}

//| ## What cannot run
//|
//| Indices have 32 bits, and some features cannot be combined: only one kind of mask makes lists, and a
//| kernel has one score function compiled in. A softcap c * tanh(s / c) is 2c / (1 + e^(-2s/c)) - c in the
//| kernels, whose float32 is good to c * 2^-22.
constexpr int kFewestPageRows = 8;  // the swizzle's pattern

/// Rejects features that cannot be combined.
std::string exclusive(const Spec& spec) {
  const Visibility& v = spec.visibility;
  const ScoreFunction& score = spec.score;
  const bool has_function = score != ScoreFunction{};
  if (!v.dense.empty() && v != Visibility{.dense = v.dense})
    return "a mask of pairs cannot be combined with windows, prefixes and documents: leave them out";
  if (v.blocks.queries > 0 && v.columns.bounds > 0)
    return "a gradient takes listed blocks or intervals by key: leave one of them out";
  if (!score.bias.values.empty() && (score.softcap > 0 || !score.alibi.empty()))
    return "chapter 9 takes a softcap, slopes or both, or a bias: leave the bias or the others out";
  if (score.dropout > 0 && (score.softcap > 0 || !score.bias.values.empty()))
    return "dropout can be combined with slopes, but not with a softcap or a bias: leave one of them out";
  if (score.dropout > 0 && !v.documents.first_query.empty() && (spec.batch > 1 || v.columns.bounds > 0))
    return "dropout takes documents in one batch entry and without intervals: give --batch 1, or leave the "
           "dropout or the documents out";
  if (has_function && v.blocks.queries > 0)
    return "listed blocks cannot be combined with functions on scores: leave one of them out";
  if (has_function && !v.dense.empty())
    return "a mask of pairs cannot be combined with functions on scores: leave one of them out";
  return "";
}

template <int kStep>
std::string limits(const Spec& spec) {
  if (spec.seqlen_q > kMaxRows || spec.seqlen_k > kMaxRows)
    return "chapter 9 takes at most 2^30 queries and keys: give fewer";
  if (int64_t(spec.batch) * spec.heads * (spec.seqlen_q / 64 + 1) > kMaxRows)
    return "batch * heads * seqlen / 64 is at most 2^30: give a smaller --batch";
  if (spec.score.softcap > 1024)
    return "chapter 9 takes a softcap up to 1024: a larger one hardly changes scores, so leave it out";
  if (kStep == kPacked && !spec.visibility.documents.first_query.empty() && spec.batch > 1)
    return "packed sequences are one batch entry: give --batch 1, or --step ranges";
  if ((kStep == kGradient || kStep == kInTurns) && !gradients_fit(spec))
    return "the lists of tiles or the rows of all heads are more than 2^30: split the batch, or give fewer "
           "tokens";
  if ((kStep == kGradient || kStep == kInTurns) && spec.value_dim != spec.head_dim) {
    if (!hopper::has_wide_keys(spec))
      return "gradients take values of another width than keys only up to 128 columns, with keys of 136 to "
             "192: pad the narrower ones with zero columns";
    if (spec.score != ScoreFunction{} || spec.visibility.blocks.queries > 0 || !spec.visibility.dense.empty())
      return "gradients of values that are narrower than keys take no function on scores, listed blocks or "
             "mask of pairs: pad the values with zero columns, or leave these out";
  }
  const int rows = spec.paging.rows;
  if (rows > 0 && rows < spec.seqlen_k && (rows < kFewestPageRows || !std::has_single_bit(unsigned(rows))))
    return "pages have 8, 16, 32, ... rows in this step, or all of a sequence: give such a number, or take "
           "chapter 8";
  return exclusive(spec);
}

//| ## The workspace
//|
//| Steps that build lists on the GPU keep them here. The others need only a counter, from which blocks take
//| their tiles. It is 0 before the first launch, and every launch resets it.
int64_t counter_bytes(const Spec&) { return kCounterBytes; }

/// Counts every tensor and every mask's data once.
template <Operation kOperation, int64_t (*kWorkspace)(const Spec&)>
double memory(const Spec& spec) {
  double bytes = compulsory_bytes(spec, kOperation) + 2.0 * double(kWorkspace(spec));
  for (const FeatureTable& table : tables_of(spec)) bytes += double(table.bytes.size());
  return bytes;
}

template <bool kTurns>
int64_t gradient_bytes(const Spec& spec) {
  return gradients_workspace_bytes(spec, kTurns);
}

template <bool kTurns>
void run_gradient(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  if constexpr (device::kHasAllHeadDims)
    if (spec.value_dim != spec.head_dim) return run_wide_gradients<192, 128>(spec, tensors, stream, kTurns);
  device::with_head_dim(hopper::tile_columns(spec.head_dim),
                        [&]<int kHeadDim>() { run_gradients<kHeadDim>(spec, tensors, stream, kTurns); });
}

//| ## The steps
//|
//| Each step is one row. The gradient's inputs and outputs differ from those of the forward steps; its
//| operation determines them.
template <int kStep, int64_t (*kWorkspace)(const Spec&)>
constexpr Step row(const char* slug, const char* name, const char* idea,
                   void (*run)(const Spec&, const Tensors&, device::Stream)) {
  constexpr Operation kOperation = kStep == kPrompts    ? Operation::decode
                                   : kStep >= kGradient ? Operation::backward
                                                        : Operation::forward;
  return {.slug = slug,
          .name = name,
          .idea = idea,
          .operation = kOperation,
          .accepts = accepted<kStep>(),
          .run = run,
          .limits = limits<kStep>,
          .workspace = kWorkspace,
          .memory = memory<kOperation, kWorkspace>,
          .zeroed = kOperation == Operation::backward ? nullptr : counter_bytes,
          .same_bits = kStep != kGradient};
}

constexpr Step kSteps[] = {
    row<kPairs, counter_bytes>(
        "dense", "a mask from memory",
        "A byte per pair tells what is visible, and every tile is checked pair by pair.", run_pairs),
    row<kPacked, varlen_workspace_bytes>(
        "varlen", "packed sequences",
        "Sequences lie one after another, and a block finds the one that its tile belongs to.", run_varlen),
    row<kRanges, counter_bytes>(
        "ranges", "ranges of tiles",
        "Windows, prefixes and documents determine which tiles are skipped, and which need no mask.",
        run_ranges),
    row<kColumns, columns_workspace_bytes>(
        "flashmask", "FlashMask",
        "Each key has two intervals of hidden queries; each tile of keys has their least and largest bounds.",
        run_columns),
    row<kFunctions, functions_workspace_bytes>("mask_functions", "functions",
                                               "Any functions decide which keys are visible and change a "
                                               "score, and a kernel lists the tiles beforehand.",
                                               run_functions),
    row<kGradient, gradient_bytes<false>>(
        "backward", "the gradient",
        "A block keeps a tile of keys, and a list holds the query tiles that see it.", run_gradient<false>),
    row<kInTurns, gradient_bytes<true>>(
        "deterministic", "deterministic",
        "The lists also fix the order of additions to dQ: the same bits every time.", run_gradient<true>),
    row<kPrompts, prompts_workspace_bytes>("prompts", "prompts against pages",
                                           "A warp looks up the pages of a tile of keys, and heads that read "
                                           "the same keys share a tile of queries.",
                                           run_prompts),
};

}  // namespace

const Chapter kMasks = {
    .number = 9,
    .name = "09_masks",
    .title = "What a query may see",
    .steps = kSteps,
};

}  // namespace flashbook
