//| # Chapter 4's descriptor
//|
//| Which steps there are, which sizes each has at which head dimension, and how much shared memory that takes. It runs on the host.
#include "chapters/04_flash_attention_2/host/chapter.h"
#include "chapters/04_flash_attention_2/step1_split_q.cuh"
#include "chapters/04_flash_attention_2/step5_tuned.cuh"
#include "chapters/04_flash_attention_2/step6_paired.cuh"
#include "common/attention/cost.h"
#include "common/device/dispatch.h"
#include "common/device/launch.h"

namespace flashbook {
namespace {

using namespace fa2;

constexpr Step kSteps[] = {
    {"split queries", "Every warp owns rows of Q; scores, probabilities and O stay in its registers."},
    {"ldmatrix, swizzled",
     "Fragments come by ldmatrix from tiles without bank conflicts, V transposed on the way."},
    {"two stages", "The next tile of keys and values travels by cp.async while this one is used."},
    {"fewer other operations",
     "Scale and exponential in one multiply-add and one exp2, one normalisation, O rescaled only where it "
     "must be."},
    {"tuned tiles",
     "32 rows a warp, keys that nobody sees skipped, a mask only where it cuts, longest tiles first; tuned "
     "per head_dim."},
    {"late maximum, paired warps",
     "d = 64: the maximum is looked for only where a sum shows that it must be; d = 256: two warps share "
     "their rows."},
};
constexpr DType kTypes[] = {DType::f16, DType::bf16};

constexpr int64_t kMaxHeads = 65535;  // the machine's limit on blocks in y

//| ## The sizes
//|
//| By a sweep on an H200. d = 64: 32 rows a warp and Q in registers, two blocks a multiprocessor. d = 128: $O$ alone takes 128
//| registers, so Q is read again with every tile; what step 6 adds at d = 64 gains nothing here, so step 6 is step 5. d = 256: 16
//| rows a warp, eight warps, one block; step 6 has a kernel of its own there.

/// The sizes of steps 5 and 6.
template <int kHeadDim, int kStep>
struct TraitsFor;
template <int kStep>
struct TraitsFor<64, kStep> : KernelTraits<64, 4, 2, true, 2, kStep == 6 ? 2 : 0> {};
template <int kStep>
struct TraitsFor<128, kStep> : KernelTraits<128, 4, 2, false, 2> {};
template <>
struct TraitsFor<256, 5> : KernelTraits<256, 8, 1, false, 1> {};

int64_t workspace_bytes(const Shape&, int) { return 0; }

double memory_bytes(const Shape& shape, int) { return compulsory_bytes(shape); }

//| ## Launches
//|
//| A step is a kernel, the queries of a block, its threads and its shared memory. The grid has a block for each tile of queries and each head. `launch_of` is the only place that
//| knows which kernel a step is at which head dimension; `shared_bytes` asks it, so that `why_not` and the launch cannot disagree.
/// A step's kernel and how it is launched.
template <typename T>
struct Launch {
  void (*kernel)(const T*, const T*, const T*, T*, float*, Problem);
  int queries, threads, shared_bytes;
};

template <typename T, int kHeadDim, int kStep>
Launch<T> split_q_launch() {
  return {split_q<T, kHeadDim, kStep>, kTile, kThreads, split_q_shared_bytes(kHeadDim, kStep)};
}

template <typename T, typename Traits>
Launch<T> tuned_launch() {
  return {tuned<T, Traits>, Traits::kQueries, Traits::kThreads, Traits::kSharedBytes};
}

template <typename T, int kHeadDim>
Launch<T> launch_of(int step) {
  switch (step) {
    case 1:
      return split_q_launch<T, kHeadDim, 1>();
    case 2:
      return split_q_launch<T, kHeadDim, 2>();
    case 3:
      return split_q_launch<T, kHeadDim, 3>();
    case 4:
      return split_q_launch<T, kHeadDim, 4>();
    case 5:
      return tuned_launch<T, TraitsFor<kHeadDim, 5>>();
  }
  if constexpr (kHeadDim == PairedTraits::kHeadDim)
    return {paired<T>, PairedTraits::kQueries, PairedTraits::kThreads, PairedTraits::kSharedBytes};
  else
    return tuned_launch<T, TraitsFor<kHeadDim, 6>>();
}

/// What a block of a step takes; the element's type makes no difference.
int shared_bytes(int head_dim, int step) {
  int bytes = 0;
  device::with_head_dim(
      head_dim, [&]<int kHeadDim>() { bytes = launch_of<__nv_bfloat16, kHeadDim>(step).shared_bytes; });
  return bytes;
}

std::string why_not(const Shape& shape, int step) {
  return fa2::why_not_within(device::shared_bytes_of_block(), shape, step);
}

template <typename T, int kHeadDim>
void run(const Shape& shape, const Tensors& t, device::Stream stream, int step) {
  constexpr float kLog2e = 1.44269504f;
  const Problem problem = {shape.seqlen_q, shape.seqlen_k, shape.heads / shape.kv_heads,
                           shape.causal(), shape.scale,    shape.scale * kLog2e};
  const Launch<T> how = launch_of<T, kHeadDim>(step);
  const dim3 grid((shape.seqlen_q + int64_t(how.queries) - 1) / how.queries, shape.batch * shape.heads);
  device::launch(how.kernel, grid, dim3(how.threads), how.shared_bytes, stream, static_cast<const T*>(t.q),
                 static_cast<const T*>(t.k), static_cast<const T*>(t.v), static_cast<T*>(t.o), t.lse,
                 problem);
}

void attention(const Shape& shape, const Tensors& tensors, device::Stream stream, int step) {
  device::with_type(shape.dtype, [&]<typename T>() {
    if constexpr (sizeof(T) == 2)  // with_type also knows float, which why_not refuses
      device::with_head_dim(shape.head_dim,
                            [&]<int kHeadDim>() { run<T, kHeadDim>(shape, tensors, stream, step); });
  });
}

}  // namespace

std::string fa2::why_not_within(int64_t shared_bytes_of_block, const Shape& shape, int step) {
  if (shape.dtype != DType::f16 && shape.dtype != DType::bf16)
    return "chapter 4 takes f16 and bf16: choose one with --dtype";
  if (int64_t(shape.batch) * shape.heads > kMaxHeads)
    return "batch * heads is at most 65535, what a grid has in y: split the batch with --batch";
  if (const std::string why = why_not_plain(shape); !why.empty()) return why;
  if (const int64_t bytes = shared_bytes(shape.head_dim, step); bytes > shared_bytes_of_block)
    return "step " + std::to_string(step) + " at head_dim " + std::to_string(shape.head_dim) + " needs " +
           std::to_string(bytes / 1024) + " KB of shared memory a block, and this GPU grants " +
           std::to_string(shared_bytes_of_block / 1024) + " KB: choose another --step";
  return {};
}

const Chapter kFlashAttention2 = {
    .number = 4,
    .name = "04_flash_attention_2",
    .title = "FlashAttention-2",
    .runs_on = device::Place::device,
    .steps = kSteps,
    .dtypes = kTypes,
    .gpu_shape = shape_for_gpu(),
    .cpu_shape = shape_for_simulator(),
    .why_not = why_not,
    .workspace_bytes = workspace_bytes,
    .memory_bytes = memory_bytes,
    .attention = attention,
    .preface = nullptr,
    .largest_score = kAnyScore,
};

}  // namespace flashbook
