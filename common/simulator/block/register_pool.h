/// \file
/// The registers of a block, which setmaxnreg moves between warps. Internal to the simulator: what kernels
/// call is in registers.h.
#pragma once
#include <string>
#include <vector>

#include "common/simulator/block/scheduler.h"
#include "common/simulator/launch_bounds.h"

namespace flashbook::sim {

class Warps;

/// What the warps of a block have given back, and who waits for it.
class RegisterPool final : public Awaited {
 public:
  RegisterPool(Scheduler& scheduler, Warps& warps) : scheduler_(scheduler), warps_(warps) {}

  /// The blocks that follow have so many threads, of a kernel with these bounds.
  void enter_grid(int threads, const LaunchBounds& bounds);
  void begin_block();
  /// Gives registers of the current thread's warp back, once its last lane has come.
  void give(int registers, Location where);
  /// Takes registers for the current thread's warp, when there are enough.
  void take(int registers, Location where);

  std::string describe_wait(const Thread& thread) const override;
  /// What a block did wrong that only its end shows; empty if nothing.
  std::string end_error() const;

 private:
  void log(const char* what, int registers, Location where) const;
  struct OfWarp {
    int registers = 0;  ///< of each of its threads
    int wanted = 0;     ///< that lane 0 waits for
    int changes = 0;    ///< how often it executed setmaxnreg
  };

  Scheduler& scheduler_;
  Warps& warps_;
  int at_start_ = 0;  ///< registers of each thread
  std::vector<OfWarp> of_warps_;
  int free_ = 0;  ///< that a thread of each warp could have more, summed over warps
  std::vector<const Thread*> waiting_;
};

}  // namespace flashbook::sim
