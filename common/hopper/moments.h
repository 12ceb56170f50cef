//| # Moments
//|
//| No profiler shows what the warpgroups of a block do at the same time. So the loops of steps 2 to 5 call
//| `Traits::record(moment, tile)` at certain points. Chapter 5's versions derive from `Unrecorded`, whose
//| `record` does nothing and compiles to nothing. The bench derives versions from them that write down the
//| clock, and draws the chapter's timeline from these.
//|
//| ![What the consumers of a block do at the same time, according to these
//| moments](../../docs/figures/pingpong_timeline.svg)
#pragma once
#include "common/device/kernel.h"

namespace flashbook::hopper {

/// Points in the loop over tiles of keys.
enum class Moment {
  keys_sent,    ///< producer: a stage was empty, and TMA has been asked to bring the tile's keys there
  values_sent,  ///< the same of its V
  landed,       ///< consumer: the tile that its first product reads is in
  turn,         ///< it may issue
  issued,       ///< it has issued both products
  scores,       ///< the scores are done
  softmax,      ///< they are probabilities
  values,       ///< the product with V is done
  end           ///< the output is rescaled, the next tile's turn begins
};
constexpr int kMoments = int(Moment::end) + 1;

/// A version that keeps no record.
struct Unrecorded {
  __device__ __forceinline__ static void record(Moment, int) {}
};

}  // namespace flashbook::hopper
