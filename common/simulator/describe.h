/// \file
/// Formatting functions that reports share. Internal to the simulator.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "common/simulator/location.h"
#include "common/simulator/vector_types.h"
#include "common/simulator/warp.h"

namespace flashbook::sim {

/// Returns "(0,2,0)", for example.
std::string triple(uint3 index);

/// Returns "lanes 0-15, 20", for example.
std::string describe_lanes(uint32_t lanes);

/// Returns "lanes 0-15 wait" or "lane 20 waits", for example.
std::string describe_waiting(uint32_t lanes);

/// Returns "0x0000ffff", for example.
std::string describe_mask(uint32_t mask);

/// Returns "cp_async_wait at kernel.cuh:12", for example.
std::string describe_call(const char* what, Location where);

/// Returns "__shfl_sync at kernel.cuh:12 with mask 0x0000ffff", for example.
std::string describe_call(const Collective& collective, Location where, uint32_t mask);

/// Returns whether two calls are certain to be the same call.
inline bool is_same_call(Location a, Location b) {
  return a.line == b.line && a.column == b.column && a.file == b.file;
}

/// Returns whether two calls are the same call. (All calls from one macro are.)
inline bool same_place(Location a, Location b) {
  return a.line == b.line && a.column == b.column && (a.file == b.file || std::string_view(a.file) == b.file);
}

}  // namespace flashbook::sim
