//| # Chapter 4's descriptor
//|
//| The steps, the sizes of each at every head dimension, and the shared memory that they take. This code runs
//| on the host.
#include "chapters/04_flash_attention_2/host/chapter.h"
#include "chapters/04_flash_attention_2/host/launch.cuh"
#include "chapters/04_flash_attention_2/step1_split_q.cuh"
#include "chapters/04_flash_attention_2/step2_ldmatrix.cuh"
#include "chapters/04_flash_attention_2/step3_two_stages.cuh"
#include "chapters/04_flash_attention_2/step4_fewer_operations.cuh"
#include "chapters/04_flash_attention_2/step6_late_maximum.cuh"
#include "chapters/04_flash_attention_2/step6_paired.cuh"
#include "common/attention/slices.h"
#include "common/device/dispatch.h"

namespace flashbook {

namespace {

using namespace fa2;

constexpr int64_t kMaxHeads = 65535;  // the largest grid in y

//| ## From a step to its kernel
//|
//| A row of the table at the end names its kernel, as a function of type and head dimension: `limits` reads
//| its shared memory and `run` launches it, so that the two cannot disagree. [launch.cuh](launch.cuh) has the
//| sizes of the tuned kernel, and smaller ones for a GPU that grants a block less shared memory than an H200
//| does.

/// Chooses the kernel for a type and a head dimension.
template <typename T, int kHeadDim>
struct For {};

/// Returns the launch of a kernel whose blocks take 64 queries and keep `tiles` tiles in shared memory.
template <int kHeadDim, typename T>
Launch<T> tiled(void (*kernel)(const T*, const T*, const T*, T*, float*, Problem), int tiles) {
  return {kernel, kTile, kThreads, tiles * kTile * kHeadDim * int(sizeof(T))};
}

template <typename T, int kHeadDim>
Launch<T> tuned_launch() {
  using Traits = TraitsFor<kHeadDim>;
  const Launch<T> how = launch_with<Traits>(tuned<T, Traits>);
  if constexpr (kHeadDim == 256)
    if (how.shared_bytes > device::granted_shared_bytes())
      return launch_with<SmallTraits256>(tuned<T, SmallTraits256>);
  return how;
}

template <typename T, int kHeadDim>
Launch<T> late_launch() {
  if constexpr (kHeadDim == 64) return launch_with<LateMaximumTraits>(late_maximum<T>);
  if constexpr (kHeadDim == 256)
    if (PairedTraits::kSharedBytes <= device::granted_shared_bytes())
      return launch_with<PairedTraits>(paired<T>);
  return tuned_launch<T, kHeadDim>();
}

//| ## What cannot run
//|
//| A grid has at most 65535 blocks in y, and two stages at $d = 256$ need 160 KB of shared memory.
template <typename LaunchOf>
std::string limits(const Spec& spec) {
  if (spec.heads > kMaxHeads)
    return "--heads is at most 65535, the largest grid in y, and it is " + std::to_string(spec.heads);
  int bytes = 0;  // per block; the same for both element types
  device::with_head_dim(spec.head_dim, [&]<int kHeadDim>() {
    bytes = LaunchOf()(For<__nv_bfloat16, kHeadDim>()).shared_bytes;
  });
  if (const int64_t granted = device::granted_shared_bytes(); bytes > granted)
    return "this step needs " + std::to_string(bytes / 1024) + " KB of shared memory per block at head_dim " +
           std::to_string(spec.head_dim) + ", and this GPU grants " + std::to_string(granted / 1024) +
           " KB: choose another --step";
  return {};
}

template <typename LaunchOf>
void run(const Spec& spec, const Tensors& t, device::Stream stream) {
  device::with_16_bit_type_and_head_dim(spec.dtype, spec.head_dim, [&]<typename T, int kHeadDim>() {
    run_in_slices(spec, t, kMaxHeads, [&](const Spec& part, const Tensors& part_tensors) {
      run_launch(LaunchOf()(For<T, kHeadDim>()), part, part_tensors, stream);
    });
  });
}

template <typename LaunchOf>
constexpr Step row(const char* slug, const char* name, const char* idea, LaunchOf) {
  return {.slug = slug,
          .name = name,
          .idea = idea,
          .operation = Operation::forward,
          .accepts = Feature::causal,
          .run = run<LaunchOf>,
          .limits = limits<LaunchOf>};
}

constexpr Step kSteps[] = {
    row("split_q", "split queries",
        "Every warp owns rows of Q; scores, probabilities and O stay in its registers.",
        []<typename T, int kHeadDim>(For<T, kHeadDim>) { return tiled<kHeadDim>(split_q<T, kHeadDim>, 3); }),
    row("ldmatrix", "ldmatrix, swizzled",
        "ldmatrix loads fragments from tiles without bank conflicts, and transposes V on the way.",
        []<typename T, int kHeadDim>(For<T, kHeadDim>) {
          return tiled<kHeadDim>(ldmatrix_swizzled<T, kHeadDim>, 3);
        }),
    row("two_stages", "two stages",
        "cp.async copies the next tile of keys and values while this one is used.",
        []<typename T, int kHeadDim>(For<T, kHeadDim>) {
          return tiled<kHeadDim>(two_stages<T, kHeadDim>, 5);
        }),
    row("fewer_operations", "fewer other operations",
        "Scale and exponential in one multiply-add and one exp2, one normalisation, O rescaled only where it "
        "must be.",
        []<typename T, int kHeadDim>(For<T, kHeadDim>) {
          return tiled<kHeadDim>(fewer_operations<T, kHeadDim>, 5);
        }),
    row("tuned", "tuned tiles",
        "32 rows per warp, keys that no query sees skipped, a mask only where it cuts, longest tiles first; "
        "tuned per head_dim.",
        []<typename T, int kHeadDim>(For<T, kHeadDim>) { return tuned_launch<T, kHeadDim>(); }),
    row("late_maximum", "late maximum, paired warps",
        "d = 64: the maximum is looked for only where a sum shows that it must be; d = 256: two warps share "
        "their rows.",
        []<typename T, int kHeadDim>(For<T, kHeadDim>) { return late_launch<T, kHeadDim>(); }),
};

}  // namespace

const Chapter kFlashAttention2 = {
    .number = 4,
    .name = "04_flash_attention_2",
    .title = "FlashAttention-2",
    .steps = kSteps,
};

}  // namespace flashbook
