/// \file
/// The registers of a block, which setmaxnreg moves between warps. Internal to the simulator: kernels include
/// registers.h.
#pragma once
#include <string>
#include <vector>

#include "common/simulator/block/scheduler.h"
#include "common/simulator/launch_bounds.h"

namespace flashbook::sim {

class Warps;

/// The registers that a block's warps have released, and the warps that are waiting for registers.
class RegisterPool final : public Awaited {
 public:
  RegisterPool(Scheduler& scheduler, Warps& warps) : scheduler_(scheduler), warps_(warps) {}

  /// Sets the number of threads of the following blocks, whose kernel has these bounds.
  void enter_grid(int threads, const LaunchBounds& bounds);
  void begin_block();
  /// Releases registers of the current thread's warp, once its last lane has arrived.
  void give(int registers, Location where);
  /// Allocates registers for the current thread's warp, once enough are free.
  void take(int registers, Location where);

  std::string describe_wait(const Thread& thread) const override;
  /// Describes errors that can be detected only at the end of the block; empty if there are none.
  std::string end_error() const;

 private:
  void log(const char* what, int registers, Location where) const;
  struct OfWarp {
    int registers = 0;  ///< registers per thread of the warp
    int wanted = 0;     ///< number requested by lane 0
    int changes = 0;    ///< number of times that lane 0 has executed setmaxnreg
  };

  Scheduler& scheduler_;
  Warps& warps_;
  int at_start_ = 0;  ///< registers per thread at the start
  std::vector<OfWarp> of_warps_;
  int free_ = 0;  ///< unused registers per thread, summed over all warps
  std::vector<const Thread*> waiting_;
};

}  // namespace flashbook::sim
