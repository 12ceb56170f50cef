/// \file
/// The work of the multiprocessors' units during launches, counted by the traced mode.
///
/// A count is not a time: units work concurrently, and waits are not counted. Nor are instructions (except
/// those below), registers and their spills, occupancy, or cache hits.
#pragma once
#include <functional>
#include <optional>
#include <vector>

namespace flashbook::testing {

/// Clocks of multiprocessors, for each unit as if it worked alone.
struct Work {
  double sectors = 0;        ///< 32 bytes of device memory each: one per clock
  double wavefronts = 0;     ///< 128 bytes of shared memory each, including wgmma and TMA: one per clock
  double exponentials = 0;   ///< exponentials and tanh: 16 per clock
  double tensor_cores = 0;   ///< multiply-adds: 2048 per clock by wgmma, 1296 by mma.sync
  double cuda_cores = 0;     ///< multiply-adds not done by tensor cores: 128 per clock
  double idle = 0;           ///< multiprocessors without a block while others have one
  double multiply_adds = 0;  ///< done by tensor cores; a number, not clocks

  double clocks() const { return sectors + wavefronts + exponentials + tensor_cores + cuda_cores + idle; }
};

/// Runs launches one after another and counts their work on this many multiprocessors. `multiply_adds`: the
/// total that the launches must do, on tensor cores or elsewhere. Empty if this program is not traced.
std::optional<Work> work_of(const std::vector<std::function<void()>>& launches, double multiply_adds,
                            int multiprocessors);

}  // namespace flashbook::testing
