//| # Chapter 7's descriptor
//|
//| Six steps of one operation: its inputs are Q, K, V, O, O's gradient and the log-sum-exp, its outputs the
//| gradients of Q, K and V. This file runs on the host and launches steps 1 and 2; those for Hopper are
//| launched in [hopper_launch.cuh](hopper_launch.cuh).
#include "chapters/07_backward/host/chapter.h"
#include "chapters/07_backward/host/hopper.h"
#include "chapters/07_backward/prepare.cuh"
#include "chapters/07_backward/step1_queries_outside.cuh"
#include "chapters/07_backward/step2_keys_outside.cuh"
#include "common/attention/cost.h"
#include "common/device/dispatch.h"
#include "common/device/launch.h"

namespace flashbook {
namespace {

using namespace backward;
using backward::Problem;

constexpr int64_t kMaxGridX = 2147483647;

/// Queries per workspace tile, which every query tile of the kernels of steps 1 and 2 divides.
constexpr int kWorkspaceTile = 128;

//| ## The sizes
//|
//| Steps 1 and 2 have sizes for each head dimension. A block that keeps keys holds two sums, $dK$ and $dV$,
//| whereas one that keeps queries holds one, $dQ$. From $d$ = 128 on the two are too large for a warp: there
//| two warps share their keys, and four at 256, and each sums a part of the columns.
template <int kHeadDim>
struct QueryTraitsFor;
template <>
struct QueryTraitsFor<64> : QueryKernelTraits<QuerySizes{.head_dim = 64, .row_blocks = 2}> {};
template <>
struct QueryTraitsFor<128> : QueryKernelTraits<QuerySizes{.head_dim = 128, .keys = 64}> {};
template <>
struct QueryTraitsFor<256> : QueryKernelTraits<QuerySizes{.head_dim = 256, .warps = 8, .blocks_per_sm = 1}> {
};

template <int kHeadDim>
struct KeyTraitsFor;
template <>
struct KeyTraitsFor<64>
    : KeyKernelTraits<KeySizes{.head_dim = 64, .warps = 4, .queries = 32, .blocks_per_sm = 2}> {};
template <>
struct KeyTraitsFor<128> : KeyKernelTraits<KeySizes{.head_dim = 128, .split = 2}> {};
template <>
struct KeyTraitsFor<256> : KeyKernelTraits<KeySizes{.head_dim = 256, .split = 4}> {};

//| ## What cannot run
//|
//| Rows of the workspace are counted in 32 bits, and every head is padded to whole tiles. So the limit
//| applies to the rows after padding.
std::string limits(const Spec& spec) {
  if (spec.q_rows() / 16 > kMaxGridX || spec.k_rows() / 16 > kMaxGridX)
    return "batch * heads * seqlen / 16 is at most 2^31 - 1, the largest grid in x: give a smaller "
           "--batch";
  constexpr int64_t kMaxRows = (int64_t(1) << 31) - 1, kPadding = 256;  // no tile has more queries
  if (int64_t(spec.batch) * spec.heads * (spec.seqlen_q + kPadding) > kMaxRows)
    return "the workspace counts its rows in 32 bits, each head rounded up to whole tiles: give a smaller "
           "--batch or --seqlen";
  return "";
}

template <int kStep>
int64_t workspace(const Spec& spec) {
  if (kStep >= 3) return hopper_workspace_bytes(spec, kStep);
  return bytes_of_workspace(spec, kWorkspaceTile, kStep == 2);  // step 2 adds dQ
}

template <int kStep>
double memory(const Spec& spec) {
  // The workspace is written once and read once, at least.
  return compulsory_bytes(spec, Operation::backward) + 2.0 * double(workspace<kStep>(spec));
}

unsigned tiles_of(int64_t heads, int64_t rows, int tile) { return unsigned(heads * ceil_div(rows, tile)); }

//| ## Steps 1 and 2: which kernels, in which order
//|
//| Both begin with `prepare`, which computes D. Step 1 then runs a kernel for $dQ$ and one for $dK$ and $dV$,
//| which are independent. Step 2 runs the second one alone; it also adds $dQ$ to sums in float32, and a last
//| kernel rounds these to 16 bits. Kernels of one stream run one after another, so no other synchronisation
//| is needed.
template <typename T, typename Traits, bool kAddsDq>
void run_keys(const Spec& spec, const Tensors& t, device::Stream stream, const Problem& problem,
              const Workspace& workspace) {
  device::launch(keys_outside<T, Traits, kAddsDq>,
                 dim3(tiles_of(int64_t(spec.batch) * spec.kv_heads, spec.seqlen_k, Traits::kKeys)),
                 dim3(Traits::kThreads), Traits::kSharedBytes, stream, static_cast<const T*>(t.q),
                 static_cast<const T*>(t.k), static_cast<const T*>(t.v), static_cast<const T*>(t.d_o),
                 workspace, static_cast<T*>(t.dk), static_cast<T*>(t.dv), problem);
}

template <typename T, int kHeadDim>
void run_two_passes(const Spec& spec, const Tensors& t, device::Stream stream) {
  run_prepare<T, kHeadDim, false>(spec, t, stream, kWorkspaceTile);
  const Problem problem = problem_of(spec, kWorkspaceTile);
  const Workspace workspace = workspace_of(spec, kWorkspaceTile, t);
  using Traits = QueryTraitsFor<kHeadDim>;
  device::launch(queries_outside<T, Traits>,
                 dim3(tiles_of(int64_t(spec.batch) * spec.heads, spec.seqlen_q, Traits::kQueries)),
                 dim3(Traits::kThreads), Traits::kSharedBytes, stream, static_cast<const T*>(t.q),
                 static_cast<const T*>(t.k), static_cast<const T*>(t.v), static_cast<const T*>(t.d_o),
                 static_cast<const float*>(workspace.lse), static_cast<const float*>(workspace.d),
                 static_cast<T*>(t.dq), problem);
  run_keys<T, KeyTraitsFor<kHeadDim>, false>(spec, t, stream, problem, workspace);
}

template <typename T, int kHeadDim>
void run_one_pass(const Spec& spec, const Tensors& t, device::Stream stream) {
  run_prepare<T, kHeadDim, true>(spec, t, stream, kWorkspaceTile);
  const Problem problem = problem_of(spec, kWorkspaceTile);
  const Workspace workspace = workspace_of(spec, kWorkspaceTile, t);
  using Traits = KeyTraitsFor<kHeadDim>;
  run_keys<T, Traits, true>(spec, t, stream, problem, workspace);
  device::launch(convert_dq<T, Traits>,
                 dim3(tiles_of(int64_t(spec.batch) * spec.heads, problem.padded_q, Traits::kQueries)),
                 dim3(Traits::kThreads), Traits::kQueryTileBytes, stream,
                 static_cast<const float*>(workspace.dq), static_cast<T*>(t.dq), problem);
}

//| ## From a step to its kernels
template <int kStep>
void run(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  const int columns = tile_columns(spec.head_dim);
  device::with_16_bit_type_and_head_dim(spec.dtype, columns, [&]<typename T, int kHeadDim>() {
    if constexpr (kStep == 1)
      run_two_passes<T, kHeadDim>(spec, tensors, stream);
    else if constexpr (kStep == 2)
      run_one_pass<T, kHeadDim>(spec, tensors, stream);
    else
      run_hopper<kHeadDim>(spec, tensors, stream, kStep);
  });
}

template <int kStep>
constexpr Step row(const char* slug, const char* name, const char* idea) {
  constexpr Features kAccepts = Feature::causal | Feature::strides;
  return {.slug = slug,
          .name = name,
          .idea = idea,
          .operation = Operation::backward,
          .accepts = kStep >= 3 ? kAccepts | Feature::any_head_dim : kAccepts,
          .run = run<kStep>,
          .limits = limits,
          .workspace = workspace<kStep>,
          .memory = memory<kStep>,
          .same_bits = kStep == 1 || kStep == 6};
}

constexpr Step kSteps[] = {
    row<1>(
        "two_passes", "two passes",
        "One kernel loops over the keys for dQ, one over the queries for dK and dV; both of them compute P "
        "and dS."),
    row<2>("one_pass", "one pass",
           "A block keeps a tile of keys, computes dS once, and adds its part of dQ to sums in memory."),
    row<3>("wgmma", "TMA and WGMMA",
           "TMA loads tiles and WGMMA multiplies them; scores are computed transposed, so that P and dS are "
           "operands in registers."),
    row<4>("specialised", "roles", "A producer, two consumers, and threads that issue TMA additions to dQ."),
    row<5>(
        "persistent", "around the loop",
        "Persistent blocks, longest tiles first, sections of heads that fit in L2, sizes by head dimension."),
    row<6>("deterministic", "deterministic", "Blocks add to dQ in a fixed order: the same bits every time."),
};

}  // namespace

const Chapter kBackward = {
    .number = 7,
    .name = "07_backward",
    .title = "The backward pass",
    .steps = kSteps,
};

}  // namespace flashbook
