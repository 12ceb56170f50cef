#include <iterator>
#include <memory>
#include <span>
#include <type_traits>

#include "bench/recorded.h"
#include "chapters/05_flash_attention_3/host/chapter.h"
#include "chapters/05_flash_attention_3/host/launch.cuh"
#include "common/ptx/clock.h"

namespace flashbook {
namespace {

using namespace fa3;

constexpr int kMaxWarpgroups = 4, kMaxTiles = 64;
constexpr const char* kMomentNames[] = {"keys_sent", "values_sent", "landed", "turn", "issued",
                                        "scores",    "softmax",     "values", "end"};
static_assert(std::size(kMomentNames) == kMoments, "one name for each moment");

/// The clocks at which warpgroups passed a moment with a tile, or 0.
struct Stamps {
  int64_t at[kMaxTiles][kMaxWarpgroups][kMoments];
};

__device__ Stamps stamps;

constexpr uint32_t kNoQuery = 0xffffffff;  // two NaNs, with which no block's queries begin

/// A version that keeps a record, in one block per launch and one thread per warpgroup.
template <typename Version>
struct Recorded : Version {
  __device__ __forceinline__ static void record(Moment moment, int tile) {
    // Outside the condition, so that the compiler computes it only once per pass.
    int64_t& stamp = stamps.at[tile][threadIdx.x / kWarpgroup][int(moment)];
    // Directly after a named barrier, the clock would be read before the wait. A load forces the wait.
    const bool waited = moment != Moment::turn || *dynamic_shared<volatile uint32_t>() != kNoQuery;
    if (waited && blockIdx.x == gridDim.x / 2 && threadIdx.x % kWarpgroup == 0) stamp = clock_cycles();
  }
};

/// Returns the stamps and clears them. One thread.
__global__ void take(Stamps* out) {
  *out = stamps;
  stamps = {};
}

std::string limits(const Spec& spec) {
  if (spec.dtype != DType::bf16 || spec.causal() || (spec.head_dim != 64 && spec.head_dim != 128) ||
      spec.seqlen_k > kMaxTiles * 128)
    return "the record supports BF16, head_dim 64 or 128, no mask, at most 8192 keys";
  return kFlashAttention3.refusal("persistent", spec);
}

template <int kHeadDim, int kStep>
void run_step(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  using T = __nv_bfloat16;
  using StepFive =
      std::conditional_t<kHeadDim == 64,
                         PersistentTraits<PersistentSizes{.head_dim = 64, .consumers = 3, .stages = 8}>,
                         PersistentTraits<PersistentSizes{.head_dim = 128}>>;
  if constexpr (kStep < 5)
    run_specialised<T, kStep, Recorded<SpecialisedFor<kHeadDim>>>(spec, tensors, stream);
  else
    run_persistent<T, Recorded<StepFive>>(spec, tensors, stream);
}

/// Returns a step of the recorded chapter.
template <int kStep>
Step recorded(const char* slug) {
  Step step = kFlashAttention3.step(slug);
  step.limits = limits;
  step.run = [](const Spec& spec, const Tensors& tensors, device::Stream stream) {
    spec.head_dim == 64 ? run_step<64, kStep>(spec, tensors, stream)
                        : run_step<128, kStep>(spec, tensors, stream);
  };
  return step;
}

}  // namespace

Chapter recorded_chapter() {
  static const Step steps[] = {recorded<2>("specialised"), recorded<3>("pingpong"), recorded<4>("overlap"),
                               recorded<5>("persistent")};
  Chapter chapter = kFlashAttention3;
  chapter.steps = steps;
  return chapter;
}

std::vector<Pass> take_record() {
  device::Buffer buffer(device::Place::device, sizeof(Stamps));
  device::launch(take, dim3(1), dim3(1), 0, nullptr, static_cast<Stamps*>(buffer.data()));
  const auto taken = std::make_unique<Stamps>();
  buffer.download(std::as_writable_bytes(std::span(taken.get(), 1)));

  std::vector<Pass> passes;
  for (int tile = kMaxTiles - 1; tile >= 0; --tile)
    for (int warpgroup = 0; warpgroup < kMaxWarpgroups; ++warpgroup) {
      Pass pass{warpgroup, tile, {}};
      for (int moment = 0; moment < kMoments; ++moment)
        if (const int64_t at = taken->at[tile][warpgroup][moment]; at != 0)
          pass.at[kMomentNames[moment]] = at;
      if (!pass.at.empty()) passes.push_back(std::move(pass));
    }
  return passes;
}

}  // namespace flashbook
