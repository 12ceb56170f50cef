/// \file
/// Programmatic dependent launch: a kernel that begins before the previous one has finished.
///
/// device::launch_dependent launches such a kernel. It may immediately set up its shared memory, barriers and
/// indices, but must call wait_for_launch_before before it accesses anything that the previous launch writes
/// or still reads. The previous launch may call let_dependents_launch to let the blocks of its successor
/// begin; otherwise they begin once all of its blocks have ended. Needs Hopper (sm_90).
#pragma once
#include "common/ptx/call_site.h"

namespace flashbook {

/// Waits until the previous launch has finished and its results can be read by this thread, and by the
/// threads that it then signals through a barrier. Returns immediately in a kernel that was launched
/// otherwise. In a chain of such launches every kernel must wait: nothing guarantees that earlier launches
/// have finished if the previous one has not waited for them. (PTX ISA, griddepcontrol.wait)
__device__ __forceinline__ void wait_for_launch_before(
    [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("griddepcontrol.wait;" ::: "memory");
#else
  sim::wait_for_launch_before(where);
#endif
}

/// Lets the next launch begin once every block of this one has called this function or ended. That does not
/// mean that the next launch may read the results: it must still wait for the end of this launch. If this
/// block has first waited for the previous launch, the next launch need not wait for that launch, too. (PTX
/// ISA, griddepcontrol.launch_dependents)
__device__ __forceinline__ void let_dependents_launch() {
#ifdef __CUDACC__
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#else
  sim::let_dependents_launch();
#endif
}

}  // namespace flashbook
