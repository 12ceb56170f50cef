//| # Chapter 9's descriptor
//|
//| Five forward steps, two of the gradient and one that reads a cache, each with the masks that it knows. It
//| runs on the host. The kernels are compiled in files of their own, `step1.cu` to `step6_d256.cu`, so that a
//| change to one policy does not compile the others; [launch.cuh](launch.cuh) and
//| [backward_launch.cuh](backward_launch.cuh) have the launches.
#include <bit>

#include "chapters/09_masks/host/chapter.h"
#include "chapters/09_masks/host/steps.h"
#include "common/attention/cost.h"
#include "common/device/dispatch.h"
#include "common/hopper/problem.h"

namespace flashbook {
namespace {

using namespace masks;

enum { kPairs = 1, kPacked, kRanges, kColumns, kFunctions, kGradient, kInTurns, kPrompts };

constexpr int kMostRows = 1 << 30;  // Band::kNoLimit

//| ## What cannot run
//|
//| What is visible is one value, a `Visibility`, with many parts, and a step knows some of them. `unknown_to`
//| takes away what the step knows; whatever is left is refused, with the step that takes it. Ranges (windows,
//| prefixes, documents) are known to all.
/// What a step leaves of a visibility that it does not know.
template <int kStep>
Visibility unknown_to(Visibility v) {
  v.window = {}, v.prefix = 0, v.documents = {};  // all steps know ranges
  if (kStep == kPairs) v.dense = {};
  if (kStep == kColumns) v.columns = {};
  if (kStep == kFunctions) v.blocks = {};
  return v;
}

/// What no step of the chapter takes, whether it reads a cache or not.
std::string why_not_of_any_keys(const Shape& shape) {
  if (shape.dtype != DType::f16 && shape.dtype != DType::bf16)
    return "chapter 9 takes f16 and bf16: give one of them as --dtype";
  if (shape.is_latent()) return "latent keys are for chapter 8: give --head-dim 64, 128 or 256";
  if (shape.e4m3_cache) return "a cache in e4m3 is for chapter 8's step 8: give one of 16 bits";
  if (shape.seqlen_q > kMostRows || shape.seqlen_k > kMostRows)
    return "chapter 9 takes at most 2^30 queries and keys: give fewer";
  if (int64_t(shape.batch) * shape.heads * (shape.seqlen_q / 64 + 1) > kMostRows)
    return "batch * heads * seqlen / 64 is at most 2^30: give a smaller --batch";
  return why_not_on_one_gpu(shape);
}

/// What steps 1 to 7 do not take.
std::string why_not_at_all(const Shape& shape) {
  if (const std::string reason = why_not_of_any_keys(shape); !reason.empty()) return reason;
  if (shape.packed_queries > 0) return "packed queries against a cache are for step 8: give documents";
  if (shape.paging.rows > 0) return "pages are for step 8: give keys and values of one piece a sequence";
  if (!shape.visibility.lengths.empty())
    return "sequences of one batch with lengths of their own are for step 8: pack them, as documents";
  const ScoreFunction& score = shape.score;
  if (!score.sinks.empty()) return "sinks are for chapter 8: give none";
  if ((score.softcap > 0 || !score.alibi.empty()) + !score.bias.values.empty() + (score.dropout > 0) > 1)
    return "chapter 9 takes a softcap, slopes or both, a bias, or a dropout: leave the others out";
  // c * tanh(s / c) is 2c / (1 + e^(-2s/c)) - c in the kernels, whose float32 is good to c * 2^-22.
  if (score.softcap > 1024)
    return "chapter 9 takes a softcap up to 1024: a larger one hardly changes scores, so leave it out";
  return "";
}

template <int kStep>
std::string why_not(const Shape& shape) {
  if (const std::string reason = why_not_at_all(shape); !reason.empty()) return reason;
  const Visibility &v = shape.visibility, unknown = unknown_to<kStep>(v);
  if (!unknown.dense.empty()) return "a mask of pairs is for step 1: give --step 1";
  if (unknown.columns.bounds > 0) return "intervals by key are for step 4: give --step 4";
  if (unknown.blocks.queries > 0) return "listed blocks are for step 5: give --step 5";
  if (kStep == kPacked && !v.documents.first_query.empty() && shape.batch > 1)
    return "packed sequences are one batch entry: give --batch 1, or take --step 3";
  if (kStep != kFunctions && shape.score != ScoreFunction{})
    return "functions on scores are for step 5: give --step 5";
  if (shape.score != ScoreFunction{} && v.blocks.queries > 0)
    return "step 5 takes listed blocks without functions on scores: leave one of them out";
  if (kStep == kPairs && !v.dense.empty() && v != Visibility{.dense = v.dense})
    return "a mask of pairs says all there is to say: leave windows, prefixes and documents out";
  return "";
}

//| ## What is no prompt
//|
//| Step 8 takes a window, lengths, pages and packed queries. The rest that chapter 8 knows of a cache is not
//| in its kernel.
constexpr int kFewestPageRows = 8;  // the swizzle's pattern

std::string why_no_prompt(const Shape& shape) {
  if (const std::string reason = why_not_of_any_keys(shape); !reason.empty()) return reason;
  Visibility v = shape.visibility;
  v.window.left = v.window.right = -1, v.lengths.clear();
  if (v != Visibility{})
    return "step 8 takes a causal mask or a window: leave other masks out, or take steps 1 to 5";
  if (shape.score != ScoreFunction{})
    return "step 8 leaves scores as they are: leave softcaps, slopes and sinks out, or take chapter 8";
  if (shape.paging.padded) return "rows before a sequence's first key are for chapter 8: leave paddings out";
  const int rows = shape.paging.rows;
  if (rows > 0 && rows < shape.seqlen_k && (rows < kFewestPageRows || !std::has_single_bit(unsigned(rows))))
    return "pages have 8, 16, 32, ... rows in step 8, or all of a sequence: give such a number, or take "
           "chapter 8";
  return "";
}

//| ## What has no gradient
//|
//| Steps 6 and 7 take the masks of all other steps, one kind at a time: its lists are made by one of them. A
//| bias has a gradient of its own, which a caller may ask for (`Tensors::d_bias`); this program does not.
/// Of steps 6 and 7, which take the masks of all steps, one kind at a time.
std::string why_no_gradient(const Shape& shape) {
  if (const std::string reason = why_not_at_all(shape); !reason.empty()) return reason;
  const Visibility& v = shape.visibility;
  if (!v.dense.empty() && v != Visibility{.dense = v.dense})
    return "a mask of pairs says all there is to say: leave windows, prefixes and documents out";
  if (v.blocks.queries > 0 && v.columns.bounds > 0)
    return "a gradient takes listed blocks or intervals by key: leave one of them out";
  if (shape.score != ScoreFunction{} && (v.blocks.queries > 0 || !v.dense.empty()))
    return "a gradient takes listed blocks and masks of pairs without functions on scores: leave one of them "
           "out";
  if (!gradients_fit(shape))
    return "the lists of tiles or the rows of all heads are more than 2^30: split the batch, or give fewer "
           "tokens";
  return "";
}

//| ## The workspace
//|
//| Steps that make lists on the card keep them here. The others need no more than a counter, from which
//| blocks take their tiles. It is 0 before the first launch, and every launch leaves it so.
int64_t counter_bytes(const Shape&) { return kCounterBytes; }

/// Every tensor once, and what says what is visible.
template <Operation kOperation, int64_t (*kWorkspace)(const Shape&)>
double memory(const Shape& shape) {
  double bytes = compulsory_bytes(shape, kOperation) + 2.0 * double(kWorkspace(shape));
  for (const ShapeTable& table : tables_of(shape)) bytes += double(table.bytes.size());
  return bytes;
}

template <bool kTurns>
int64_t gradient_bytes(const Shape& shape) {
  return gradients_workspace_bytes(shape, kTurns);
}

template <bool kTurns>
void run_gradient(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  device::with_head_dim(hopper::tile_columns(shape.head_dim),
                        [&]<int kHeadDim>() { run_gradients<kHeadDim>(shape, tensors, stream, kTurns); });
}

//| ## The steps
//|
//| A step is a row. The gradient takes and gives other tensors than the forward steps, which its operation
//| says.
template <int kStep, int64_t (*kWorkspace)(const Shape&)>
constexpr Step row(const char* name, const char* idea,
                   void (*run)(const Shape&, const Tensors&, device::Stream)) {
  constexpr Operation kOperation = kStep == kPrompts    ? Operation::decode
                                   : kStep >= kGradient ? Operation::backward
                                                        : Operation::forward;
  return {.name = name,
          .idea = idea,
          .operation = kOperation,
          .why_not = kStep == kPrompts    ? why_no_prompt
                     : kStep >= kGradient ? why_no_gradient
                                          : why_not<kStep>,
          .workspace = kWorkspace,
          .run = run,
          .memory = memory<kOperation, kWorkspace>,
          .zeroed = kOperation == Operation::backward ? nullptr : counter_bytes,
          .same_bits = kStep != kGradient};
}

constexpr Step kSteps[] = {
    row<kPairs, counter_bytes>(
        "a mask from memory",
        "A byte for each pair says what is visible, and every tile is asked pair by pair.", run_pairs),
    row<kPacked, varlen_workspace_bytes>(
        "packed sequences",
        "Sequences lie one after another, and a block finds the one that its tile belongs to.", run_varlen),
    row<kRanges, counter_bytes>(
        "ranges of tiles",
        "A window, a prefix or documents say by arithmetic which tiles are skipped, and which need no mask.",
        run_ranges),
    row<kColumns, columns_workspace_bytes>(
        "FlashMask",
        "Two intervals of hidden queries for each key, and their least and largest for each tile of keys.",
        run_columns),
    row<kFunctions, functions_workspace_bytes>("functions",
                                               "Any function says what is visible and what becomes of a "
                                               "score, and a kernel lists the tiles beforehand.",
                                               run_functions),
    row<kGradient, gradient_bytes<false>>(
        "the gradient", "A block keeps a tile of keys, and a list says which tiles of queries see it.",
        run_gradient<false>),
    row<kInTurns, gradient_bytes<true>>(
        "deterministic", "The lists also say whose turn it is to add to dQ: the same bits every time.",
        run_gradient<true>),
    row<kPrompts, prompts_workspace_bytes>("prompts against pages",
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
