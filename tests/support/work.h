/// \file
/// What launches ask of the units of their multiprocessors, counted by the traced mode.
///
/// A count is no time: units work beside each other, and what waits for what is not counted. Nor are
/// instructions (but for those below), registers and what of them lies in local memory, how many blocks fit
/// on a multiprocessor, and what a cache has.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace flashbook::testing {

/// Clocks of multiprocessors, each unit's as though it worked alone.
struct Work {
  double sectors = 0;        ///< of 32 bytes of device memory: one a clock
  double wavefronts = 0;     ///< of shared memory: one a clock, operands of wgmma and what TMA writes, too
  double exponentials = 0;   ///< and tanh: 16 a clock
  double tensor_cores = 0;   ///< multiply-adds: 2048 a clock by wgmma, 1296 by mma.sync
  double cuda_cores = 0;     ///< those multiply-adds that no tensor core did: 128 a clock
  double idle = 0;           ///< of multiprocessors without a block while others have one
  double multiply_adds = 0;  ///< that tensor cores did: no clocks

  double clocks() const { return sectors + wavefronts + exponentials + tensor_cores + cuda_cores + idle; }
};

/// Runs launches one after another, and counts what they do on so many multiprocessors. `multiply_adds`: that
/// the launches must do together, on tensor cores or others. Nothing if this program is not traced.
std::optional<Work> work_of(const std::vector<std::function<void()>>& launches, double multiply_adds,
                            int multiprocessors);

}  // namespace flashbook::testing
