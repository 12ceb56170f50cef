//| # Chapter 3's descriptor
//|
//| This file lists the steps, the shapes that they accept, the bytes that they request, and their launches.
//| It runs on the host.
#include "chapters/03_flash_attention_1/host/chapter.h"
#include "chapters/03_flash_attention_1/host/launch.cuh"
#include "chapters/03_flash_attention_1/step1_keys_outside.cuh"
#include "common/attention/slices.h"
#include "common/device/dispatch.h"

namespace flashbook {
namespace {

constexpr int64_t kMaxGridX = 2147483647;  // the largest grid in x
constexpr int64_t kMaxGridY = 65535;       // and in y
constexpr int kBlock = 64;                 // queries and keys of a tile in steps 1 and 2
constexpr int kSmallBlock = 32;            // where those do not fit

//| ## The sizes
//|
//| Steps 1 and 2 use tiles of 64 rows at every head dimension, a size that fits both an H200 and an A100.
//| Step 3 was tuned by a sweep on an H200: more keys per warp reduce the traffic of $Q$ and $O$, and two
//| blocks must fit on a multiprocessor.
/// Step 3's tiles, by head dimension: the fastest for which one block fits on an SM of an A100, and two on an
/// SM of an H200.
template <int kHeadDim>
struct TraitsFor;
template <>
struct TraitsFor<64> {
  using Type = fa1::KernelTraits<fa1::SplitKSizes{.head_dim = 64, .queries = 64, .keys = 128}>;
};
template <>
struct TraitsFor<128> {
  using Type = fa1::KernelTraits<fa1::SplitKSizes{.head_dim = 128, .queries = 32, .keys = 128}>;
};
template <>
struct TraitsFor<256> {
  using Type = fa1::KernelTraits<fa1::SplitKSizes{.head_dim = 256, .queries = 32, .keys = 64}>;
};

//| Desktop GPUs such as the RTX 3090 allow 99 KB per block. Tiles that exceed this are smaller there: 32 rows
//| in steps 1 and 2 at d = 256, 64 keys in step 3 at d = 128. Otherwise, no second kernel is compiled.
template <typename Tiles>
bool fits() {
  return int64_t(sizeof(Tiles)) <= device::granted_shared_bytes();
}

/// Calls `run` with the rows of a tile in steps 1 and 2.
template <typename T, int kHeadDim, typename Run>
void with_block(const Run& run) {
  if constexpr (kHeadDim == 256)
    if (!fits<fa1::Tiles<T, kHeadDim, kBlock>>()) return run.template operator()<kSmallBlock>();
  run.template operator()<kBlock>();
}

/// Calls `run` with the tiles of step 3.
template <typename T, int kHeadDim, typename Run>
void with_traits(const Run& run) {
  using Traits = typename TraitsFor<kHeadDim>::Type;
  if constexpr (kHeadDim == 128)
    if (!fits<fa1::SplitKTiles<T, Traits>>())
      return run.template
      operator()<fa1::KernelTraits<fa1::SplitKSizes{.head_dim = 128, .queries = 32, .keys = 64}>>();
  run.template operator()<Traits>();
}

/// Returns the rows of a tile in steps 1 and 2.
int block_of(const Sizes& sizes) {
  int rows = 0;
  device::with_head_dim(sizes.head_dim, [&]<int kHeadDim>() {
    with_block<__nv_bfloat16, kHeadDim>([&]<int kRows>() { rows = kRows; });
  });
  return rows;
}

template <int kStep>
std::string limits(const Spec& spec) {
  constexpr int64_t kMax = kStep == 1 ? kMaxGridX : kMaxGridY;
  if (spec.heads > kMax)
    return "--heads is at most " + std::to_string(kMax) + " in this step, the largest grid in " +
           (kStep == 1 ? "x" : "y") + ", and it is " + std::to_string(spec.heads);
  return "";
}

/// Returns the bytes in which step 1 saves the unfinished O and two numbers per row, in float32.
int64_t state_bytes(const Spec& spec) { return spec.q_rows() * (spec.head_dim + 2) * int64_t(sizeof(float)); }

/// The unfinished O of step 1 goes to device memory and back. Steps 2 and 3 request K and V again and again,
/// and hit in the L2: traffic.h counts the requests.
double memory_keys_outside(const Spec& spec) { return fa1::bytes_keys_outside(spec, block_of(spec)); }

/// Returns the bytes requested from the L2, which serves K and V again and again.
template <int kStep>
double requested(const Spec& spec) {
  const int block = block_of(spec);
  if (kStep == 1) return fa1::bytes_keys_outside(spec, block, fa1::kRequestedNumber);
  if (kStep == 2) return fa1::bytes_queries_outside(spec, block, block, fa1::kRequestedNumber);
  double bytes = 0;
  device::with_head_dim(spec.head_dim, [&]<int kHeadDim>() {
    with_traits<__nv_bfloat16, kHeadDim>([&]<typename Traits>() {
      bytes = fa1::bytes_queries_outside(spec, Traits::kRowsQ, Traits::kRowsK, fa1::kRequestedRow);
    });
  });
  return bytes;
}

//| ## Launches
//|
//| Step 1 has one block per head and keeps its state in the workspace: $O$, then the maxima, then the sums.
//| Steps 2 and 3 have one block per tile of queries, and need no workspace.
template <int kStep>
void run_part(const Spec& spec, const Tensors& t, device::Stream stream) {
  device::with_16_bit_type_and_head_dim(spec.dtype, spec.head_dim, [&]<typename T, int kHeadDim>() {
    if constexpr (kStep == 2) {
      with_block<T, kHeadDim>(
          [&]<int kRows>() { fa1::run_queries_outside<T, kHeadDim, kRows>(spec, t, stream); });
    } else if constexpr (kStep == 3) {
      with_traits<T, kHeadDim>([&]<typename Traits>() { fa1::run_split_k<T, Traits>(spec, t, stream); });
    } else {
      auto* workspace = static_cast<float*>(t.workspace);
      const fa1::State state = {workspace, workspace + spec.q_elements(),
                                workspace + spec.q_elements() + spec.q_rows()};
      with_block<T, kHeadDim>([&]<int kRows>() {
        device::launch(fa1::keys_outside<T, kHeadDim, kRows>, dim3(unsigned(spec.batch * spec.heads)),
                       dim3(fa1::kThreads), sizeof(fa1::Tiles<T, kHeadDim, kRows>), stream,
                       static_cast<const T*>(t.q), static_cast<const T*>(t.k), static_cast<const T*>(t.v),
                       static_cast<T*>(t.o), t.lse, state, fa1::problem_of(spec));
      });
    }
  });
}

template <int kStep>
void run(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  run_in_slices(spec, tensors, kStep == 1 ? kMaxGridX : kMaxGridY,
                [&](const Spec& part, const Tensors& t) { run_part<kStep>(part, t, stream); });
}

constexpr Step kSteps[] = {
    {.slug = "keys_outside",
     .name = "keys outside, queries inside",
     .idea = "The paper's loop order: no score leaves the chip, but the unfinished O travels through device "
             "memory.",
     .operation = Operation::forward,
     .accepts = Feature::causal,
     .run = run<1>,
     .limits = limits<1>,
     .workspace = state_bytes,
     .memory = memory_keys_outside,
     .requested = requested<1>},
    {.slug = "queries_outside",
     .name = "queries outside, keys inside",
     .idea = "O, maxima and sums of a tile of queries stay in registers while K and V pass by, and every "
             "tile is a "
             "block.",
     .operation = Operation::forward,
     .accepts = Feature::causal,
     .run = run<2>,
     .limits = limits<2>,
     .requested = requested<2>},
    {.slug = "split_k",
     .name = "tensor cores, split-K warps",
     .idea =
         "The warps of a block split the keys of a tile, multiply with wmma and add up O in shared memory.",
     .operation = Operation::forward,
     .accepts = Feature::causal,
     .run = run<3>,
     .limits = limits<3>,
     .requested = requested<3>},
};

}  // namespace

const Chapter kFlashAttention1 = {
    .number = 3,
    .name = "03_flash_attention_1",
    .title = "FlashAttention-1",
    .steps = kSteps,
};

}  // namespace flashbook
