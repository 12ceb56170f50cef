/// \file
/// mbarriers: barriers in shared memory that count arrivals and bytes.
#pragma once
#include <cstdint>

#include "common/simulator/location.h"

namespace flashbook::sim {

// The functions behind the wrappers in common/ptx/mbarrier.h and fence.h.
void mbarrier_init(void* barrier, uint32_t arrivals, Location where);
void mbarrier_inval(void* barrier, Location where);
void fence_mbarrier_init(Location where);
void name_mbarrier(const void* barrier, const char* name, int index, Location where);
void mbarrier_arrive(void* barrier, Location where);
void mbarrier_arrive_expect_tx(void* barrier, uint32_t bytes, Location where);
bool mbarrier_try_wait(const void* barrier, uint32_t parity, Location where);
bool mbarrier_test_wait(const void* barrier, uint32_t parity, Location where);
void mbarrier_wait(const void* barrier, uint32_t parity, Location where);
void fence_proxy_async(Location where);
void fence_proxy_async_global(Location where);

}  // namespace flashbook::sim
