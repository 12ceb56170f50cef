/// \file
/// Rules about the addresses that instructions take. Internal to the simulator.
#pragma once
#include <cstddef>

#include "common/simulator/location.h"

namespace flashbook::sim {

/// Throws Error unless `address` is a multiple of `alignment` and the `bytes` bytes there lie in the calling
/// block's shared memory: in the dynamic part or in one `__shared__` array. `what` is the instruction's name
/// in reports. Any address will do where `__shared__` arrays cannot be found (static_shared.h).
void require_shared(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                    Location where);

/// The same for device memory: the bytes must lie in one allocation. No bytes may lie anywhere.
void require_global(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                    Location where);

/// The same for instructions that take either.
void require_shared_or_global(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                              Location where);

}  // namespace flashbook::sim
