//| # Chapter 5's descriptor
//|
//| Which steps there are, what they refuse, how much memory each needs, and which kernel a step is. It runs on the host; [launch.cuh](launch.cuh) has the launches.
#include "chapters/05_flash_attention_3/host/chapter.h"
#include "chapters/05_flash_attention_3/host/launch.cuh"
#include "common/attention/cost.h"
#include "common/device/dispatch.h"

namespace flashbook {
namespace {

using namespace fa3;

constexpr Step kSteps[] = {
    {"TMA and WGMMA",
     "One warpgroup, tiles that TMA brings and WGMMA multiplies where they lie, nothing overlapped."},
    {"warp specialisation",
     "A producer keeps a pipeline of tiles filled, consumers multiply, and registers move from one to the "
     "others."},
    {"pingpong",
     "The consumers take turns at the tensor cores, so that one's softmax lies under the others' products."},
    {"overlap in a warpgroup",
     "The scores of the next tile are issued before the values of this one are waited for."},
    {"persistent blocks",
     "Blocks that stay, longest tiles first, masked and unmasked loops apart, lazy rescaling, stores that "
     "overlap the next tile."},
};
constexpr DType kTypes[] = {DType::f16, DType::bf16};

constexpr int64_t kMaxGridX = 2147483647;

//| ## What cannot run
//|
//| A refusal is a text that names the cure; an empty one means that it runs. A grid has at most 2^31 - 1 blocks in x, and step 1 has the most blocks: one for 64 queries.
std::string why_not(const Shape& shape, int) {
  if (shape.dtype != DType::f16 && shape.dtype != DType::bf16)
    return "chapter 5 takes f16 and bf16: choose one with --dtype";
  if (query_tiles(shape, kRowsOfWarpgroup) > kMaxGridX)
    return "batch * heads * seqlen / 64 is at most 2^31 - 1, what a grid has in x: split the batch with "
           "--batch";
  return why_not_dense(shape);
}

//| ## The workspace
//|
//| All tiles take as long without a mask, so blocks can count through them by themselves. Under a causal mask they differ, and whoever is free takes the next: that needs a counter that all blocks see, four bytes of device memory. Whoever asks it last sets it back to zero for the next call.
/// Step 5 under a causal mask hands out tiles by a counter.
bool counts_tiles(const Shape& shape, int step) { return step == 5 && shape.causal(); }

int64_t workspace_bytes(const Shape& shape, int step) { return counts_tiles(shape, step) ? sizeof(int) : 0; }

double memory_bytes(const Shape& shape, int) { return compulsory_bytes(shape); }

//| ## From a step to its kernel
//|
//| Type, head dimension and step are known here only when the program runs, and kernels want them when they are compiled. `with_type` and `with_head_dim` turn the two into a type and a constant: the lambda is compiled once for each. Steps 2 to 4 are one kernel with two switches, pingpong and overlap.
void attention(const Shape& shape, const Tensors& tensors, device::Stream stream, int step) {
  device::with_type(shape.dtype, [&]<typename T>() {
    if constexpr (sizeof(T) == 2)  // with_type also knows float, which why_not refuses
      device::with_head_dim(shape.head_dim, [&]<int kHeadDim>() {
        switch (step) {
          case 1:
            return run_single<T, kHeadDim>(shape, tensors, stream);
          case 2:
            return run_specialised<T, SpecialisedFor<kHeadDim, false, false>>(shape, tensors, stream);
          case 3:
            return run_specialised<T, SpecialisedFor<kHeadDim, true, false>>(shape, tensors, stream);
          case 4:
            return run_specialised<T, SpecialisedFor<kHeadDim, true, true>>(shape, tensors, stream);
          default:
            return with_version<kHeadDim>(
                shape, [&]<typename Traits>() { run_persistent<T, Traits>(shape, tensors, stream); });
        }
      });
  });
}

}  // namespace

const Chapter kFlashAttention3 = {
    .number = 5,
    .name = "05_flash_attention_3",
    .title = "FlashAttention-3",
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
    .zeroed_bytes = workspace_bytes,  // all of it is the counter
    .largest_score = kAnyScore,
};

}  // namespace flashbook
