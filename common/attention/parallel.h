/// \file
/// A loop that uses all cores.
#pragma once
#include <cstdint>
#include <functional>

namespace flashbook {

/// Calls body(i) for every i in [0, count) on all cores, handing out the indices in ascending order. The
/// first exception ends the loop and is rethrown here.
void parallel_for(int64_t count, const std::function<void(int64_t)>& body);

}  // namespace flashbook
