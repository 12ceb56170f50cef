/// \file
/// A loop that uses all cores.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>

#include "common/numeric/arithmetic.h"

namespace flashbook {

/// Calls body(i) for every i in [0, count) on all cores, handing out the indices in ascending order. The
/// first exception ends the loop and is rethrown.
void parallel_for(int64_t count, const std::function<void(int64_t)>& body);

/// Calls a short body(i) for every i in [0, count), handing out `block` indices at a time.
template <typename Body>
void parallel_for_blocks(int64_t count, int64_t block, Body body) {
  parallel_for(ceil_div(count, block), [&](int64_t number) {
    const int64_t end = std::min(count, (number + 1) * block);
    for (int64_t i = number * block; i < end; ++i) body(i);
  });
}

}  // namespace flashbook
