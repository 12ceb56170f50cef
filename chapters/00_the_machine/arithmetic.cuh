//| # Arithmetic: multiply-adds, exponentials, matrix products
//|
//| These kernels also measure latency and rate, now of arithmetic. A single chain of operations, each of
//| which needs the previous result, shows an instruction's **latency**. Many independent chains show its
//| **rate**: how many results a multiprocessor delivers per clock. One kernel measures both, depending on
//| `kChains` and the number of warps.
//|
//| ![Issue slots of a scheduler with 1, 4 and 20 warps](../../docs/figures/issue_slots.svg)
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/clock.h"
#include "common/ptx/math.h"
#include "common/ptx/mma.h"

namespace flashbook::machine {

//| ## Multiply-adds
//|
//| x = x / 2 + 1 converges to 2 from any start, so the result can be checked. `half` and `one` are arguments,
//| because the compiler could evaluate constants ahead of time.

/// Executes `rounds` multiply-adds in each of kChains chains, per thread.
template <int kChains>
__global__ void __launch_bounds__(1024)
    multiply_add(float half, float one, int rounds,
                 float* sums,        // [threads of the grid]: the sum of each thread's chains
                 int64_t* clocks) {  // [blocks]
  float x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = float(i);
  __syncthreads();  // all warps begin together
  const int64_t begin = clock_cycles();
#pragma unroll 8
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int i = 0; i < kChains; ++i) x[i] = x[i] * half + one;
  __syncthreads();  // the block is done when its last warp is
  if (threadIdx.x == 0) clocks[blockIdx.x] = clock_cycles() - begin;
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += x[i];
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

//| ## Exponentials
//|
//| The softmax needs one exponential per score. A **special function unit** computes 2^x in one instruction,
//| `MUFU.EX2`. Each quarter of a multiprocessor has 4 of them, next to its 32 CUDA cores. x = 2^-x converges
//| to 0.6412.

/// Executes `rounds` exponentials in each of kChains chains, per thread.
template <int kChains>
__global__ void __launch_bounds__(1024) exponentials(int rounds, float* sums, int64_t* clocks) {
  float x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = float(i);
  __syncthreads();  // all warps begin together
  const int64_t begin = clock_cycles();
#pragma unroll 8
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int i = 0; i < kChains; ++i) x[i] = exp2_approx(-x[i]);
  __syncthreads();  // the block is done when its last warp is
  if (threadIdx.x == 0) clocks[blockIdx.x] = clock_cycles() - begin;
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += x[i];
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

//| ## Matrix products
//|
//| A **tensor core** multiplies small matrices. With `mma.sync`, a warp supplies a 16x16 and a 16x8 matrix of
//| 16-bit numbers in registers and adds their 16x8 product to an accumulator: 2 * 16 * 16 * 8 = 4096 FLOPs in
//| one instruction. Here, all elements of both matrices are 1, so each product adds 16 to every element.

constexpr int kMmaFlops = 2 * 16 * 8 * 16;

/// Executes `rounds` products in each of kChains chains, per warp.
template <int kChains>
__global__ void __launch_bounds__(512)
    warp_products(uint32_t ones, int rounds, float* sums, int64_t* clocks) {  // `ones`: a register of two 1s
  const uint32_t a[4] = {ones, ones, ones, ones};
  float sum_of[kChains][4] = {};
  __syncthreads();  // all warps begin together
  const int64_t begin = clock_cycles();
#pragma unroll 2
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int i = 0; i < kChains; ++i) mma_m16n8k16<__half>(sum_of[i], a, ones, ones, sum_of[i]);
  __syncthreads();  // the block is done when its last warp is
  if (threadIdx.x == 0) clocks[blockIdx.x] = clock_cycles() - begin;
  float sum = 0;
  for (int i = 0; i < kChains; ++i)
    for (int j = 0; j < 4; ++j) sum += sum_of[i][j];
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace flashbook::machine
