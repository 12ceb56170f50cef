#include "common/simulator/trap.h"

#include "common/simulator/block/worker.h"

namespace flashbook::sim {

std::string describe_trap(Trap trap) {
  if (!current_worker) return "the program was stopped outside a kernel";
  switch (trap) {
    case Trap::memory:
      return current_worker->report_of(Crash::memory);
    case Trap::stack:
      return current_worker->report_of(Crash::stack);
    case Trap::division:
      return current_worker->report_of(Crash::division);
    case Trap::other:
      break;
  }
  return "a thread was stopped\n  " + describe_current(current_worker->scheduler.current());
}

}  // namespace flashbook::sim
