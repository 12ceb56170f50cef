//| # The switches of step 5, each changed
//|
//| A version of the kernel is a type ([hopper_launch.cuh](hopper_launch.cuh)). These derive from step 5's and
//| change one thing each. The bench times them interleaved with unmodified step 5; the tests compare each
//| with the oracle. Step 4 has its tiles in the same order as step 5.
//|
//| ![Left: without a mask each block begins with other queries and goes round. Right: under a causal mask
//| step 6's blocks add in turn, the one with the last keys first](../../../docs/figures/backward_starts.svg)
#pragma once
#include "chapters/07_backward/host/hopper_launch.cuh"

namespace flashbook::backward {

/// Step 5, unchanged.
template <typename Traits>
struct AsItIs : Traits {};

//| ## Assigning tiles to blocks
/// One block per key tile, so that consecutive tiles do not overlap.
template <typename Traits>
struct NoneStay : Traits {
  static constexpr Schedule kSchedule = Schedule::single_tile;
};

/// All blocks of a head begin with its first queries. Under a causal mask each block does so anyway: it
/// begins with the first queries that see its keys.
template <typename Traits>
struct OneStart : Traits {
  static constexpr bool kRotate = false;
};

/// Under a causal mask, uses sections of one head each, the longest tiles first.
template <typename Traits>
struct HeadByHead : Traits {
  static constexpr bool kSections = false;
};

/// Under a causal mask, goes head by head, and starts with the last keys, which the fewest queries see.
template <typename Traits>
struct ShortestFirst : Traits {
  static constexpr bool kLongestFirst = false;
};

//| ## Who adds dQ, and when
/// Swaps additions by TMA and from registers; adds a round's dQ in the same round.
template <typename Traits>
struct OtherAdder : FromRegisters<Traits> {};
template <typename Traits>
struct OtherAdder<FromRegisters<Traits>> : Traits {};
template <typename Traits>
struct OtherAdder<LateDq<Traits>> : Traits {};

/// Computes a round's dQ in the same round, whereas step 5 computes it in the next one at d = 64.
template <typename Traits>
struct EarlyDq;
template <typename Traits>
struct EarlyDq<LateDq<Traits>> : FromRegisters<Traits> {};

//| ## The launches
/// Launches step 5 with other versions.
template <typename T, int kHeadDim, bool kCausal, template <typename> typename Turned>
void run_turned(const Spec& spec, const Tensors& t, device::Stream stream) {
  begin<T, kHeadDim>(spec, t, stream, 5);
  with_step5<kHeadDim, kCausal>(spec,
                                [&]<typename Traits>() { run_blocks<T, Turned<Traits>>(spec, t, stream); });
  run_convert<T, kHeadDim, Version<kHeadDim, kCausal>::kQueries>(spec, t, stream);
  run_convert_keys<T, kHeadDim>(spec, t, stream, 5);
}

}  // namespace flashbook::backward
