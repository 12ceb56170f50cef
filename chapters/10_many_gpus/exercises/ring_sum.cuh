/// \file
/// Exercise ch10-buffer: a sum that is sometimes wrong.
#pragma once
#include <vector>

#include "common/device/launch.h"
#include "common/device/ranks.h"

namespace flashbook::many_gpus {

// Every rank needs the sum of all ranks' numbers, in float32. The numbers travel around the ring: at each hop
// a rank adds the numbers that it holds to its sum while it passes them on and receives the next ones. Two
// buffers alternate, as in the chapter.

constexpr int kAddThreads = 128;

/// sum += numbers, one number per thread.
__global__ void __launch_bounds__(kAddThreads) add_numbers(float* sum, const float* numbers, int count);

/// Puts add_numbers into the queue.
inline void add_to(float* sum, const float* numbers, int count, device::Queue& queue) {
  device::launch(add_numbers, dim3(unsigned((count + kAddThreads - 1) / kAddThreads)), dim3(kAddThreads), 0,
                 queue.stream(), sum, numbers, count);
}

using device::Event, device::Queue, device::Rank;

// BEGIN EXERCISE ch10-buffer: a sum that is sometimes wrong
/// Adds all ranks' numbers to `sum`. `held[0]` has this rank's own numbers at the start; both buffers may be
/// overwritten.
inline void sum_round_the_ring(Rank& rank, float* sum, float* const (&held)[2], int count) {
  const int ranks = rank.count(), next = (rank.number() + 1) % ranks,
            previous = (rank.number() + ranks - 1) % ranks;
  const std::size_t bytes = std::size_t(count) * sizeof(float);
  Queue compute, copies;
  Event arrived;
  for (int hop = 0; hop < ranks; ++hop) {
    const Event here = arrived;
    if (hop + 1 < ranks) {
      rank.exchange(copies, {{next, held[hop % 2], bytes}}, {{previous, held[(hop + 1) % 2], bytes}});
      arrived = copies.record();
    }
    compute.wait_for(here);  // the numbers of this hop have arrived
    add_to(sum, held[hop % 2], count, compute);
  }
  compute.synchronize();
  copies.synchronize();
}
// END EXERCISE ch10-buffer

inline __global__ void __launch_bounds__(kAddThreads)
    add_numbers(float* sum, const float* numbers, int count) {
  const int at = int(blockIdx.x) * kAddThreads + int(threadIdx.x);
  if (at < count) sum[at] += numbers[at];
}

}  // namespace flashbook::many_gpus
