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

constexpr int64_t kMaxHeads = 65535;  // the machine's limit on blocks in y

//| ## Launches
//|
//| Only `launch_of` maps a step and a head dimension to a kernel; `limits` gets the shared memory from it, so
//| that the two cannot disagree. [launch.cuh](launch.cuh) has the sizes of step 5, and smaller ones for a GPU
//| that grants a block less shared memory than an H200 does.
template <typename T, int kHeadDim, int kStep>
Launch<T> launch_of() {
  constexpr int kTileBytes = kTile * kHeadDim * 2;
  if constexpr (kStep == 1) {
    return {split_q<T, kHeadDim>, kTile, kThreads, 3 * kTileBytes};
  } else if constexpr (kStep == 2) {
    return {ldmatrix_swizzled<T, kHeadDim>, kTile, kThreads, 3 * kTileBytes};
  } else if constexpr (kStep == 3) {
    return {two_stages<T, kHeadDim>, kTile, kThreads, 5 * kTileBytes};
  } else if constexpr (kStep == 4) {
    return {fewer_operations<T, kHeadDim>, kTile, kThreads, 5 * kTileBytes};
  } else if constexpr (kStep == 6 && kHeadDim == 64) {
    return launch_with<LateMaximumTraits>(late_maximum<T>);
  } else {
    using Traits = TraitsFor<kHeadDim>;
    Launch<T> how = launch_with<Traits>(tuned<T, Traits>);
    if constexpr (kHeadDim == 256) {
      if constexpr (kStep == 6) how = launch_with<PairedTraits>(paired<T>);
      if (how.shared_bytes > device::granted_shared_bytes())
        how = launch_with<SmallTraits256>(tuned<T, SmallTraits256>);
    }
    return how;
  }
}

//| ## What cannot run
//|
//| A grid has at most 65535 blocks in y, and steps 3 and 4 at $d = 256$ need 160 KB of shared memory.
template <int kStep>
std::string limits(const Shape& shape) {
  if (shape.heads > kMaxHeads)
    return "--heads is at most 65535, what a grid has in y, and it is " + std::to_string(shape.heads);
  int bytes = 0;  // per block; the same for both element types
  device::with_head_dim(shape.head_dim, [&]<int kHeadDim>() {
    bytes = launch_of<__nv_bfloat16, kHeadDim, kStep>().shared_bytes;
  });
  if (const int64_t granted = device::granted_shared_bytes(); bytes > granted)
    return "step " + std::to_string(kStep) + " at head_dim " + std::to_string(shape.head_dim) + " needs " +
           std::to_string(bytes / 1024) + " KB of shared memory a block, and this GPU grants " +
           std::to_string(granted / 1024) + " KB: choose another --step";
  return {};
}

template <int kStep>
void run(const Shape& shape, const Tensors& t, device::Stream stream) {
  device::with_16_bit_type_and_head_dim(shape.dtype, shape.head_dim, [&]<typename T, int kHeadDim>() {
    run_in_slices(shape, t, kMaxHeads, [&](const Shape& part, const Tensors& part_tensors) {
      run_launch(launch_of<T, kHeadDim, kStep>(), part, part_tensors, stream);
    });
  });
}

template <int kStep>
constexpr Step row(const char* name, const char* idea) {
  return {.name = name,
          .idea = idea,
          .operation = Operation::forward,
          .accepts = Feature::causal,
          .run = run<kStep>,
          .limits = limits<kStep>};
}

constexpr Step kSteps[] = {
    row<1>("split queries", "Every warp owns rows of Q; scores, probabilities and O stay in its registers."),
    row<2>("ldmatrix, swizzled",
           "Fragments come by ldmatrix from tiles without bank conflicts, V transposed on the way."),
    row<3>("two stages", "The next tile of keys and values travels by cp.async while this one is used."),
    row<4>(
        "fewer other operations",
        "Scale and exponential in one multiply-add and one exp2, one normalisation, O rescaled only where it "
        "must be."),
    row<5>(
        "tuned tiles",
        "32 rows per warp, keys that no query sees skipped, a mask only where it cuts, longest tiles first; "
        "tuned "
        "per head_dim."),
    row<6>(
        "late maximum, paired warps",
        "d = 64: the maximum is looked for only where a sum shows that it must be; d = 256: two warps share "
        "their rows."),
};

}  // namespace

const Chapter kFlashAttention2 = {
    .number = 4,
    .name = "04_flash_attention_2",
    .title = "FlashAttention-2",
    .steps = kSteps,
};

}  // namespace flashbook
