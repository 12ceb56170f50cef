/// \file
/// Programmatic dependent launch: a kernel that begins before the one before it is over.
///
/// device::launch_dependent launches such a kernel. It may set up its shared memory, its barriers and its
/// indices at once, and touches what the launch before writes, or still reads, after wait_for_launch_before.
/// The launch before may say by let_dependents_launch that its successor's blocks may come now; if it says
/// nothing, they come as its own blocks end. Needs Hopper (sm_90).
#pragma once
#include "common/ptx/call_site.h"

namespace flashbook {

/// Waits until the launch before is over and what it wrote can be read by this thread, and by those whom it
/// then lets know by a barrier. Returns at once in a kernel that was launched otherwise. In a chain of such
/// launches every kernel waits: nothing promises that launches before the last are over if the last one has
/// not waited for them. (PTX ISA, griddepcontrol.wait)
__device__ __forceinline__ void wait_for_launch_before(
    [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("griddepcontrol.wait;" ::: "memory");
#else
  sim::wait_for_launch_before(where);
#endif
}

/// For this block, the launch after this one may begin; it does when every block has said so or ended. What
/// it may then read is another matter: that waits for the end. If this block has waited for the launch before
/// first, the next one need not ask about that launch. (PTX ISA, griddepcontrol.launch_dependents)
__device__ __forceinline__ void let_dependents_launch() {
#ifdef __CUDACC__
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#else
  sim::let_dependents_launch();
#endif
}

}  // namespace flashbook
