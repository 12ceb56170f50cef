#include "common/simulator/block/counter_loop.h"

#include <chrono>
#include <string>

#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/launch.h"
#include "common/simulator/memory.h"

namespace flashbook::sim {

/// Compares device memory with its state some seconds ago. A thread that does nothing but add to a counter
/// gives no other thread a turn.
void CounterLoop::look(const Scheduler& scheduler, const char* what, Location where) {
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  const bool is_first = additions_ == kAdditionsATime;
  if (options().timeout == 0 || (!is_first && now - since_ < options().timeout)) return;
  const uint64_t memory = checksum_of_allocations(counter_), turns = scheduler.turns();
  if (!is_first && memory == memory_ && turns - turns_ >= kAdditionsATime)
    throw Error("infinite loop: " + describe_call(what, where) + " has added to " +
                current_worker->memory.describe(counter_) + " " + std::to_string(additions_) +
                " times, and for " + std::to_string(options().timeout) +
                " seconds (FLASHBOOK_SIM_TIMEOUT) nothing else in device memory has changed. If the loop "
                "takes tiles from a counter, leave it at any number that is not a tile (>=, not ==), since "
                "every block gets such a number");
  since_ = now;
  memory_ = memory;
  turns_ = turns;
}

}  // namespace flashbook::sim
