//| # Chapter 8's descriptor
//|
//| Ten steps of decoding: few queries, a long cache. It runs on the host; [launch.cuh](launch.cuh) has the
//| launches.
#include "chapters/08_decoding/host/chapter.h"
#include "chapters/08_decoding/host/e4m3_cache.h"
#include "chapters/08_decoding/host/latent.h"
#include "chapters/08_decoding/host/rules.h"
#include "chapters/08_decoding/host/shared_prefix.cuh"
#include "chapters/08_decoding/host/warpgroup.h"
#include "common/attention/cost.h"
#include "common/attention/pages.h"
#include "common/device/dispatch.h"

namespace flashbook {
namespace decoding {

//| ## Rules
//|
//| A window that is not the causal mask, functions on scores, and sinks are [rules](../rules.cuh), kernels of
//| their own in `rules_d64.cu` to `rules_d256.cu`.
bool has_rules(const Shape& shape) {
  const Window& window = shape.visibility.window;
  return window.left >= 0 || window.right > 0 || shape.score.softcap != 0 || !shape.score.alibi.empty() ||
         !shape.score.sinks.empty() || shape.paging.padded || shape.packed_queries > 0;
}

Shape without_rules(Shape shape) {
  Window& window = shape.visibility.window;
  window.left = -1;
  if (window.right > 0) window.right = -1;
  shape.score.softcap = 0, shape.score.alibi.clear(), shape.score.sinks.clear();
  shape.paging.padded = false, shape.packed_queries = 0;
  return shape;
}

std::string why_not_rules(const Shape& shape) {
  const Shape plain = without_rules(shape);
  const Visibility& v = plain.visibility;
  if (v.prefix > 0 || v.window.sinks > 0)
    return "chapter 8 has windows without first keys that are seen besides: leave them out, or take chapter "
           "9";
  if (plain.score != ScoreFunction{})
    return "chapter 8 takes a softcap, slopes and sinks, no bias and no dropout: leave it out, or take "
           "chapter 9";
  if (shape.paging.padded && shape.paging.rows > 0 && shape.paging.rows < shape.seqlen_k)
    return "paddings are of caches of one piece, or of one page a sequence: give pages of seqlen_k rows, or "
           "none";
  // c * tanh(s / c) is 2c / (1 + e^(-2s/c)) - c in the kernel, whose float32 is good to c * 2^-22.
  if (shape.score.softcap > 1024)
    return "chapter 8 takes a softcap up to 1024: a larger one hardly changes scores, so leave it out";
  if (plain != shape && std::max(shape.seqlen_q, shape.seqlen_k) > 1 << 30)
    return "chapter 8 takes at most 2^30 queries and keys under a window or a function: give fewer";
  return "";
}

}  // namespace decoding
namespace {

using namespace decoding;

/// One new token for each of 16 sequences of 8192: the shape of Llama-3-8B's attention.
Shape shape_of_cache(int batch, int heads, int kv_heads, int seqlen_k, int head_dim) {
  Shape shape = square_shape(batch, heads, 1, head_dim, DType::bf16);
  shape.kv_heads = kv_heads, shape.seqlen_k = seqlen_k;
  return shape;
}

constexpr int64_t kMaxGridX = 2147483647;
constexpr int kMostKeys = 1 << 30;
constexpr int kRowsOfSwizzle = 8;  // after which its pattern repeats

int group_of(const Shape& shape) { return shape.heads / shape.kv_heads; }

//| ## What cannot run
//|
//| Pages and lengths by sequence are this chapter's own, and the check of dense attention refuses both. So a
//| copy of the shape without them is checked. Latent attention has one head of 576 elements, of which 512 are
//| values; to the dense check its halves look like `head_dim` 256.
/// What none of the steps takes.
std::string why_not_at_all(const Shape& shape) {
  if (shape.dtype != DType::f16 && shape.dtype != DType::bf16)
    return "chapter 8 takes f16 and bf16: give one of them as --dtype";
  if (shape.q_rows() > kMaxGridX)
    return "batch * heads * seqlen is " + std::to_string(shape.q_rows()) +
           ", and chapter 8 takes at most 2^31 - 1: give a smaller --batch";
  return "";
}

template <int kStep>
std::string why_not(const Shape& shape) {
  if (std::string reason = why_not_at_all(shape); !reason.empty()) return reason;
  Shape dense = shape;
  dense.visibility.lengths.clear();
  if (kStep >= 5) {
    const int rows = shape.paging.rows;
    if (rows > 0 && rows < shape.seqlen_k && !std::has_single_bit(unsigned(rows)))
      return "pages have 1, 2, 4, 8, ... rows here, a power of two, or all of a sequence: give such a number";
    if (shape.paging.rows > 0 && shape.seqlen_k > kMostKeys)
      return "pages hold at most 2^30 keys of a sequence: give fewer";
    dense.paging = {};
  }
  if (kStep < 4 && why_not_rules(shape).empty() && without_rules(dense) != dense)
    return "windows, softcaps, slopes, sinks, paddings and packed queries are for steps 4 to 6, 9 and 10: "
           "give one of those as --step";
  if (kStep >= 4) {
    if (std::string reason = why_not_rules(shape); !reason.empty()) return reason;
    dense = without_rules(dense);
  }
  return why_not_dense(dense, kStep >= 4 ? HeadDims::padded : HeadDims::of_tiles);
}

std::string why_not_latent(const Shape& shape) {
  if (std::string reason = why_not_at_all(shape); !reason.empty()) return reason;
  if (!shape.is_latent()) return "this step takes latent keys only: give --head-dim 576, or another step";
  if (shape.paging.padded || shape.packed_queries > 0)
    return "paddings and packed queries are for steps 4 to 6, 9 and 10: give one of those as --step";
  if (std::string reason = why_not_latent_pages(shape); !reason.empty()) return reason;
  Shape dense = shape;
  dense.visibility.lengths.clear();
  dense.paging = {};
  dense.head_dim = kLatentValueDim / 2;  // which is dense attention's
  dense.layout = {};
  return why_not_dense(dense);
}

//| Step 8 takes what step 6 takes without rules, in a cache of e4m3.
std::string why_not_e4m3_cache(const Shape& shape) {
  if (std::string reason = why_not_at_all(shape); !reason.empty()) return reason;
  if (!shape.e4m3_cache) return "this step takes a cache in e4m3 only: give one, or take another step";
  if (has_rules(shape))
    return "windows, softcaps, slopes, sinks, paddings and packed queries are for caches of 16 bits: leave "
           "them out, or give a cache of 16 bits";
  if (std::string reason = why_not_scales(shape); !reason.empty()) return reason;
  Shape of_16_bits = shape;
  if (tile_columns(shape.head_dim) != shape.head_dim)
    return "head dimensions between 64, 128 and 256 are for caches of 16 bits: give one of the three, or "
           "a cache of 16 bits";
  of_16_bits.e4m3_cache = false;
  of_16_bits.scaling = Scaling::tensor;
  return why_not<6>(of_16_bits);
}

std::string why_not_warpgroups(const Shape& shape) {
  if (std::string reason = why_not<10>(shape); !reason.empty()) return reason;
  if (has_pages(shape) && shape.paging.rows < kRowsOfSwizzle)
    return "pages of " + std::to_string(shape.paging.rows) +
           " rows are not supported by this step: use pages of 8 rows or more, or step 9";
  return "";
}

int64_t warpgroup_bytes(const Shape& shape) {
  return ring_workspace_bytes(shape, warpgroup_launch(shape, false));
}

//| ## The workspace
//|
//| Partial results, if the keys are split: a row of O in float32 and its log-sum-exp for each query and part.
//| From step 4 on there are counters of arrived blocks, too. Those must be zero before the first call, and
//| the last block of a sequence sets its own back.
int64_t parts_bytes(const Shape& shape) {
  const int parts = parts_of(shape);
  return parts == 1 ? 0 : partial_bytes(shape, parts);
}

template <int kStep>
int64_t ring_bytes(const Shape& shape) {
  return ring_workspace_bytes(shape, ring_launch(shape, kStep == 6));
}

/// Of several sequences some room more, whose prefixes may be shared.
int64_t shared_bytes(const Shape& shape) {
  return shape.batch > 1 ? std::max(ring_bytes<6>(shape), shared_workspace_bytes(shape))
                         : ring_bytes<6>(shape);
}

/// The counters of steps 4 to 7, which reset themselves, at the beginning of a workspace.
template <int64_t (*kWorkspace)(const Shape&)>
int64_t counters(const Shape& shape) {
  return kWorkspace(shape) > 0 ? kArrivalBytes : 0;
}

/// Keys and values come once for each query head.
double memory_by_head(const Shape& shape) {
  const double cache = 2.0 * double(shape.k_elements()) * double(size_of(shape.dtype));
  return compulsory_bytes(shape, Operation::decode) + (group_of(shape) - 1) * cache;
}

/// Keys and values come once; partial results go out and come back.
template <int64_t (*kParts)(const Shape&)>
double memory(const Shape& shape) {
  return compulsory_bytes(shape, Operation::decode) + 2.0 * double(kParts(shape));
}

//| ## From a step to its kernel
//|
//| Steps 1 to 3 are one kernel that differs in two numbers: how many query heads are rows of one tile, and
//| into how many parts the keys are split. Steps 4 to 6 are another; a page table and a plan are data to it.
//| Step 9 is the same with other producers, and takes step 6's plan.
template <int kStep>
void run(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  const int columns = tile_columns(shape.head_dim);
  if (kStep >= 4 && (has_rules(shape) || columns != shape.head_dim))
    return device::with_head_dim(columns, [&]<int kHeadDim>() {
      run_with_rules<kHeadDim>(shape, tensors, stream, kStep >= 6, kStep >= 9);
    });
  device::with_16_bit_type_and_head_dim(shape.dtype, shape.head_dim, [&]<typename T, int kHeadDim>() {
    switch (kStep) {
      case 1:
        return run_pack_gqa<T, kHeadDim>(shape, tensors, stream, 1, 1);
      case 2:
        return run_pack_gqa<T, kHeadDim>(shape, tensors, stream, group_of(shape), 1);
      case 3:
        return run_pack_gqa<T, kHeadDim>(shape, tensors, stream, group_of(shape), parts_of(shape));
      default:
        return run_ring<T, kHeadDim>(shape, tensors, stream, kStep >= 6, kStep >= 9);
    }
  });
}

/// Step 10.
void run_step10(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  device::with_head_dim(tile_columns(shape.head_dim),
                        [&]<int kHeadDim>() { run_warpgroups<kHeadDim>(shape, tensors, stream); });
}

/// Of step 3, whose merge asks for parts without keys, too, and leaves aside whatever lies there.
int64_t no_counters(const Shape&) { return 0; }

constexpr Step kSteps[] = {
    {"chapter 5's way",
     "A block for each query head, which reads the keys and values of its key head from the first to the "
     "last.",
     Operation::decode, why_not<1>, nullptr, run<1>, memory_by_head},
    {"a group in one tile",
     "The query heads that share a key head are rows of one tile, so keys and values are read once.",
     Operation::decode, why_not<2>, nullptr, run<2>},
    {"keys split over blocks",
     "Every block takes a part of the keys, and a second kernel merges the partial results.",
     Operation::decode, why_not<3>, parts_bytes, run<3>, memory<parts_bytes>, nullptr, no_counters},
    {"a deep ring",
     "Shared memory is one ring of narrow tiles that a warp keeps filled, and the last to arrive merges.",
     Operation::decode, why_not<4>, ring_bytes<4>, run<4>, memory<ring_bytes<4>>, nullptr,
     counters<ring_bytes<4>>},
    {"pages",
     "A table says which page has a sequence's next keys, and TMA puts a tile together page by page.",
     Operation::decode, why_not<5>, ring_bytes<5>, run<5>, memory<ring_bytes<5>>, nullptr,
     counters<ring_bytes<5>>},
    {"equal work", "All tiles of keys are numbered through and dealt out evenly, wherever a sequence ends.",
     Operation::decode, why_not<6>, shared_bytes, run<6>, memory<ring_bytes<6>>, nullptr,
     counters<shared_bytes>},
    {.name = "latent attention",
     .idea = "Keys of 576 elements are values too, and two warpgroups have a half of the output each.",
     .operation = Operation::decode,
     .why_not = why_not_latent,
     .workspace = latent_workspace_bytes,
     .run = run_latent,
     .memory = memory<latent_workspace_bytes>,
     .zeroed = counters<latent_workspace_bytes>,
     .latent = true},
    {.name = "a cache in e4m3",
     .idea = "Keys and values are one byte each, with a scale, and become f16 on their way to tensor cores.",
     .operation = Operation::decode,
     .why_not = why_not_e4m3_cache,
     .workspace = shared_bytes,
     .run = run_e4m3_cache,
     .memory = memory<ring_bytes<6>>,
     .zeroed = counters<shared_bytes>,
     .e4m3_cache = true},
    {.name = "boxes of rows",
     .idea = "Tensor maps fetch many keys of one head at once, whatever lies between them.",
     .operation = Operation::decode,
     .why_not = why_not<9>,
     .workspace = shared_bytes,
     .run = run<9>,
     .memory = memory<ring_bytes<6>>,
     .zeroed = counters<shared_bytes>},
    {.name = "a warpgroup's rows",
     .idea = "Several tokens of a group fill the rows of wgmma, which reads each key once.",
     .operation = Operation::decode,
     .why_not = why_not_warpgroups,
     .workspace = warpgroup_bytes,
     .run = run_step10,
     .memory = memory<warpgroup_bytes>,
     .zeroed = counters<warpgroup_bytes>},
};

}  // namespace

const Chapter kDecoding = {
    .number = 8,
    .name = "08_decoding",
    .title = "Decoding",
    .steps = kSteps,
    .gpu_shape = shape_of_cache(16, 32, 8, 8192, 128),
    .cpu_shape = shape_of_cache(2, 8, 2, 1000, 64),
};

}  // namespace flashbook
