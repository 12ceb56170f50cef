//| # One warp writes, another reads
//|
//| This is the smallest use of mbarriers: a letter box with room for one letter. Warp 0 writes a letter of 32
//| numbers, and warp 1 reads it backwards. Neither may be too early, so each waits for the other: warp 1 at
//| `full`, until there is a letter, and warp 0 at `empty`, until the previous letter has been taken out.
//|
//| | phase | `empty` ends it when | warp 0 waits for | `full` ends it when | warp 1 waits for |
//| |--:|---|--:|---|--:|
//| | 0 | letter 0 has been read | parity 1: passes at once | letter 0 is written | parity 0 |
//| | 1 | letter 1 has been read | parity 0 | letter 1 is written | parity 1 |
//| | 2 | letter 2 has been read | parity 1 | letter 2 is written | parity 0 |
//|
//| **Break it.** Let warp 1 wait for `parity ^ 1`. Like that of warp 0, its first wait returns at once, and
//| it opens an empty box. From then on the warps are one letter apart, and in the end both wait forever.
#pragma once
#include "common/ptx/mbarrier.h"

namespace flashbook::fa3 {

constexpr int kLetters = 4;

/// Copies kLetters letters of 32 numbers, each backwards. One block of two warps.
__global__ void pass_letters(const int* in, int* out) {
  __shared__ int box[32];
  __shared__ uint64_t full, empty;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 32);  // a phase ends when 32 threads have arrived
    mbarrier_init(&empty, 32);
    name_mbarrier(&full, "full");
    name_mbarrier(&empty, "empty");
  }
  __syncthreads();
  const int lane = int(threadIdx.x) % 32;
  for (int letter = 0; letter < kLetters; ++letter) {
    const unsigned parity = unsigned(letter) % 2;
    if (threadIdx.x < 32) {
      mbarrier_wait(&empty, parity ^ 1);
      box[lane] = in[letter * 32 + lane];
      mbarrier_arrive(&full);
    } else {
      mbarrier_wait(&full, parity);
      out[letter * 32 + lane] = box[31 - lane];
      mbarrier_arrive(&empty);
    }
  }
}

}  // namespace flashbook::fa3
