#include "common/simulator/intrinsics.h"

#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {

void stop_kernel(const char* what, Location where) {
  throw Error(describe_call(what, where) + " stops the kernel");
}

bool is_shared(const void* address) { return running_worker("__isShared", {}).memory.contains(address, 1); }

}  // namespace flashbook::sim
