//| # Chapter 5's descriptor
//|
//| The steps, the inputs that they reject, the memory that each needs, and the kernel of each. This code runs
//| on the host; [launch.cuh](launch.cuh) has the launches.
#include "chapters/05_flash_attention_3/host/chapter.h"
#include "chapters/05_flash_attention_3/host/launch.cuh"
#include "common/device/dispatch.h"

namespace flashbook {
namespace {

using namespace fa3;

constexpr int64_t kMaxGridX = 2147483647;

//| ## What cannot run
//|
//| A rejection is a message that names the remedy; an empty message means that the step runs. A grid has at
//| most 2^31 - 1 blocks in x, and step 1 has the most blocks: one for 64 queries.
std::string limits(const Spec& spec) {
  if (query_tiles(spec, kRowsPerWarpgroup) > kMaxGridX)
    return "batch * heads * seqlen / 64 is at most 2^31 - 1, the largest grid in x: give a smaller "
           "--batch";
  return "";
}

//| ## The workspace
//|
//| Without a mask all tiles take equally long, so each block can compute which tiles are its own. Under a
//| causal mask they differ, and the next tile goes to the first block that is free: that takes a counter that
//| all blocks share, four bytes of device memory. The last block to read it resets it to 0 for the next call.
/// Returns the size of the counter with which step 5 hands out tiles under a causal mask.
int64_t counter_bytes(const Spec& spec) { return spec.causal() ? sizeof(int) : 0; }

//| ## From a step to its kernel
//|
//| Type, head dimension and step are known only at run time here, but kernels need them at compile time.
//| `with_16_bit_type_and_head_dim` turns the two into a type and a constant: the lambda is compiled once for
//| each. A head dimension between two sizes of tiles takes the larger (`tiles.h`).
template <int kStep>
void run(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  const int columns = tile_columns(spec.head_dim);
  device::with_16_bit_type_and_head_dim(spec.dtype, columns, [&]<typename T, int kHeadDim>() {
    if constexpr (kStep == 1)
      run_single<T, kHeadDim>(spec, tensors, stream);
    else if constexpr (kStep < 5)
      run_specialised<T, kStep, SpecialisedFor<kHeadDim>>(spec, tensors, stream);
    else
      with_version<kHeadDim>(spec,
                             [&]<typename Traits>() { run_persistent<T, Traits>(spec, tensors, stream); });
  });
}

constexpr Features kAccepts = Feature::causal | Feature::strides | Feature::any_head_dim;

template <int kStep>
constexpr Step row(const char* slug, const char* name, const char* idea) {
  return {.slug = slug,
          .name = name,
          .idea = idea,
          .operation = Operation::forward,
          .accepts = kAccepts,
          .run = run<kStep>,
          .limits = limits};
}

constexpr Step kSteps[] = {
    row<1>("single_warpgroup", "TMA and WGMMA",
           "One warpgroup; TMA loads tiles and WGMMA multiplies them in place; nothing overlaps."),
    row<2>(
        "specialised", "warp specialisation",
        "A producer keeps a pipeline of tiles filled, consumers multiply, and registers move from one to the "
        "others."),
    row<3>("pingpong", "pingpong",
           "The consumers take turns at the tensor cores, so that one's softmax overlaps with the "
           "products of the others."),
    row<4>("overlap", "overlap in a warpgroup",
           "The scores of the next tile are issued before the values of this one are waited for."),
    {.slug = "persistent",
     .name = "persistent blocks",
     .idea = "Persistent blocks, longest tiles first, separate masked and unmasked loops, lazy rescaling, "
             "stores that overlap the next tile.",
     .operation = Operation::forward,
     .accepts = kAccepts,
     .run = run<5>,
     .limits = limits,
     .workspace = counter_bytes,
     .zeroed = counter_bytes},
};

}  // namespace

const Chapter kFlashAttention3 = {
    .number = 5,
    .name = "05_flash_attention_3",
    .title = "FlashAttention-3",
    .steps = kSteps,
};

}  // namespace flashbook
