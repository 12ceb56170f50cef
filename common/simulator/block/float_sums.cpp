/// \file
/// Instructions that add several floats in global memory.
#include "common/simulator/atomics.h"
#include "common/simulator/block/addresses.h"
#include "common/simulator/block/worker.h"

namespace flashbook::sim {

void add_floats(const char* what, void* address, std::span<float> values, Location where) {
  require_global(what, address, values.size_bytes(), values.size_bytes(), where);
  const Worker& worker = running_worker(what, where);
  if (Observer* observer = worker.observer())
    observer->touches(worker.current_number(), {Access::atomic, address, values.size_bytes(), what, where});
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = add_in_global_memory(static_cast<float*>(address) + i, values[i]);
  change_memory();
}

}  // namespace flashbook::sim
