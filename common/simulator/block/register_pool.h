/// \file
/// The registers of a block, which setmaxnreg moves between warps. Internal to the simulator: kernels call
/// registers.h.
#pragma once
#include <string>
#include <vector>

#include "common/simulator/block/scheduler.h"
#include "common/simulator/launch_bounds.h"

namespace flashbook::sim {

class Warps;

/// The registers that a block's warps have released, and the warps that wait for some.
class RegisterPool final : public Awaited {
 public:
  RegisterPool(Scheduler& scheduler, Warps& warps) : scheduler_(scheduler), warps_(warps) {}

  /// The following blocks have this many threads, of a kernel with these bounds.
  void enter_grid(int threads, const LaunchBounds& bounds);
  void begin_block();
  /// Releases registers of the current thread's warp, once its last lane has arrived.
  void give(int registers, Location where);
  /// Allocates registers for the current thread's warp, when there are enough.
  void take(int registers, Location where);

  std::string describe_wait(const Thread& thread) const override;
  /// Errors that only show at the end of the block; empty if there are none.
  std::string end_error() const;

 private:
  void log(const char* what, int registers, Location where) const;
  struct OfWarp {
    int registers = 0;  ///< per thread of the warp
    int wanted = 0;     ///< requested by lane 0
    int changes = 0;    ///< how often lane 0 has executed setmaxnreg
  };

  Scheduler& scheduler_;
  Warps& warps_;
  int at_start_ = 0;  ///< registers per thread
  std::vector<OfWarp> of_warps_;
  int free_ = 0;  ///< unused registers per thread, summed over warps
  std::vector<const Thread*> waiting_;
};

}  // namespace flashbook::sim
