//| # Moments
//|
//| No profiler shows what the warpgroups of a block do at the same time. So the loops of steps 2 to 5 call
//| `Traits::record(moment, tile)` at certain points. Chapter 5's versions derive from `Unrecorded`, whose
//| `record` does nothing and compiles to nothing. The bench derives versions from these that record the
//| clock, from which the chapter's timeline is drawn.
//|
//| ![What the consumers of a block do at the same time, according to these
//| moments](../../docs/figures/pingpong_timeline.svg)
#pragma once
#include "common/device/kernel.h"

namespace flashbook::hopper {

/// Points in the loop over tiles of keys.
enum class Moment {
  keys_sent,    ///< producer: a stage was empty, and the load of the tile's keys was issued
  values_sent,  ///< producer: another stage was empty, and the load of the tile's values was issued
  landed,       ///< consumer: the tile that its first product reads has landed
  turn,         ///< consumer: it may issue its products
  issued,       ///< consumer: it has issued both products
  scores,       ///< consumer: the scores are complete
  softmax,      ///< consumer: the scores have become probabilities
  values,       ///< consumer: the product with V is complete
  end           ///< consumer: the output is rescaled, and the next tile begins
};
constexpr int kMoments = int(Moment::end) + 1;

/// A version that records nothing.
struct Unrecorded {
  __device__ __forceinline__ static void record(Moment, int) {}
};

}  // namespace flashbook::hopper
