/// \file
/// The traced mode: unwritten memory, memory of other threads, blocks and the host, undefined results, and
/// the calls that lead to an access. This file is instrumented (flashbook_traced).
#include <string>
#include <vector>

#include "common/device/launch.h"
#include "common/ptx/atomic.h"
#include "tests/simulator/simulated.h"
#include "tests/simulator/trace_memory_helper.cuh"
#include "tests/values.h"

namespace flashbook {
namespace {

// ---- unwritten memory

__global__ void largest(const float* in, float* out) {
  if (in[threadIdx.x] > 0) out[threadIdx.x] = 1;
}
__global__ void exchange(float* out) { out[1 + threadIdx.x] = atomicExch(&out[0], 1.0f); }
__global__ void write(float* out, int step) { out[step * threadIdx.x] = -1; }
__global__ void write_minus_one(int* out) { out[threadIdx.x] = -1; }
__global__ void read_minus_one(const int* in, int* out) { out[threadIdx.x] = in[threadIdx.x]; }
__global__ void copy(const float4* in, float4* out) { out[threadIdx.x] = in[threadIdx.x]; }
__global__ void count_in_shared(int* out, bool clear) {
  __shared__ int counter;
  if (clear && threadIdx.x == 0) counter = 0;
  __syncthreads();
  atomicAdd(&counter, 1);
  __syncthreads();
  out[threadIdx.x] = counter;
}

// ---- uninitialised locals

#ifndef __clang__  // clang initialises locals to NaN
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // elsewhere an error of the build
template <typename T>
__global__ void largest_by_comparison(const T* row, float* out, int count) {
  T largest;
  for (int i = int(threadIdx.x); i < count; i += 32)
    if (row[i] > largest) largest = row[i];
  out[threadIdx.x] = float(largest);
}
__global__ void largest_by_fmaxf(const float* row, float* out) {
  float largest;
  for (int i = 0; i < 8; ++i) largest = fmaxf(largest, row[i]);
  out[threadIdx.x] = largest;
}
__global__ void set_by_one_branch(const int* row, float* out, int from) {
  int last;
  if (row[threadIdx.x] >= from) last = row[threadIdx.x];
  out[threadIdx.x] = last > 50 ? 1.0f : 0.0f;
}
#pragma GCC diagnostic pop
#endif

// ---- memory of another block

/// Block 0 leaves a pointer to its shared memory, or the value there, for block 1, and exits or waits for it.
__global__ void leave_a_pointer(const float** place, int* left, float* out, bool together, bool as_numbers) {
  __shared__ float shared;
  shared = 5;
  if (blockIdx.x == 0) {
    if (as_numbers)
      out[0] = shared;
    else
      *place = &shared;
    store_release(left, 1);
    while (together && load_acquire(left) == 1) {
    }
  } else {
    while (load_acquire(left) == 0) {
    }
    out[1] = as_numbers ? out[0] : **place;
    store_release(left, 2);
  }
}

// ---- memory of another thread, and of the host

__global__ void read_a_local_of_thread_0(float* out) {
  __shared__ const float* place;
  const float own[2] = {float(threadIdx.x), 1};
  if (threadIdx.x == 0) place = own;
  __syncthreads();
  out[threadIdx.x] = place[threadIdx.x % 2];
}
struct Rows {
  const float* first;
};
__global__ void read_through_a_struct(Rows rows, float* out) { out[threadIdx.x] = rows.first[threadIdx.x]; }

// ---- results that C++ leaves undefined

__global__ void shift(int bits, float* out) { out[threadIdx.x] = float(1u << bits); }
__global__ void convert(float number, float* out) { out[threadIdx.x] = float(int(number)); }
#ifndef __clang__
__device__ inline float sum_of(const float* values, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += values[i];
  return sum;
}
__global__ void leave_an_array(int count, float* out) {
  float own[4] = {1, 2, 3, 4};
  own[threadIdx.x % 4] = 5;
  out[threadIdx.x] = sum_of(own, count);
}
#endif

// Tests.

using TraceMemory = sim::SimulatorTest;

template <typename... Params, typename... Args>
std::string error_of(unsigned blocks, unsigned threads, void (*kernel)(Params...), Args... args) {
  try {
    device::launch(kernel, blocks, threads, 0, nullptr, args...);
  } catch (const device::DeviceError& error) {
    return error.what();
  }
  return "";
}

void expect_unwritten(const std::string& error) {
  EXPECT_NE(error.find("uninitialised device memory is read in block 0, global memory"), error.npos) << error;
  EXPECT_NE(error.find("trace_memory_test.cu:"), error.npos) << error;
}

TEST_F(TraceMemory, WhatAKernelHasWrittenLaterOnesMayRead) {
  const Values<float> values(64), out(64);
  EXPECT_EQ(error_of(1, 32, write, values.data(), 2), "");
  for (int i = 0; i < 2; ++i) expect_unwritten(error_of(1, 32, largest, values.data(), out.data()));
  EXPECT_EQ(error_of(1, 32, write, values.data() + 1, 2), "");
  EXPECT_EQ(error_of(1, 32, largest, values.data(), out.data()), "");
  // The bytes of -1 look like unwritten memory.
  const Values<int> numbers(64);
  EXPECT_EQ(error_of(1, 32, write_minus_one, numbers.data() + 16), "");
  const Values<int> others(32);
  EXPECT_EQ(error_of(1, 32, read_minus_one, numbers.data() + 16, others.data()), "");
  expect_unwritten(error_of(1, 32, read_minus_one, numbers.data() + 32, others.data()));
}

TEST_F(TraceMemory, WhoOnlyWritesMayComeFirst) {
  EXPECT_EQ(error_of(1, 1, exchange, Values<float>(2).data()), "");
  const Values<float> fresh(64), out(std::vector<float>(64, 0.0f));
  // Structs may have padding, which is never used.
  EXPECT_EQ(error_of(1, 8, write, fresh.data(), 4), "");
  EXPECT_EQ(
      error_of(1, 8, copy, reinterpret_cast<float4*>(fresh.data()), reinterpret_cast<float4*>(out.data())),
      "");
}

TEST_F(TraceMemory, PoisonedMemoryIsUnwrittenAgain) {
  device::Buffer buffer(device::Place::device, 128);
  const Values<float> out(32);
  buffer.upload(std::vector<std::byte>(128));
  EXPECT_EQ(error_of(1, 32, largest, static_cast<float*>(buffer.data()), out.data()), "");
  buffer.poison();
  expect_unwritten(error_of(1, 32, largest, static_cast<float*>(buffer.data()), out.data()));
}

TEST_F(TraceMemory, ALaunchThatNobodyWatchesMayHaveWrittenAll) {
  const Values<float> fresh(64), out(64);
  sim::run_grid(
      1, 1, 0, [] {}, nullptr, nullptr);
  EXPECT_EQ(error_of(1, 32, largest, fresh.data(), out.data()), "");
}

TEST_F(TraceMemory, AtomicsInSharedMemoryReadWhatIsThere) {
  const Values<int> out(32);
  EXPECT_EQ(error_of(1, 32, count_in_shared, out.data(), true), "");
  const std::string error = error_of(1, 32, count_in_shared, out.data(), false);
  EXPECT_NE(error.find("uninitialised shared memory is read in block 0, a __shared__ array"), error.npos)
      << error;
}

#ifndef __clang__  // clang does not track where a pointer comes from, and initialises locals to NaN

TEST_F(TraceMemory, ComparisonsBeginWithAValue) {
  const Values<float> floats(std::vector<float>(64, -1.0f)), out(32);
  const Values<double> doubles(std::vector<double>(64, -1.0));
  const Values<int> ints(std::vector<int>(64, -1)), large(std::vector<int>(32, 60));
  EXPECT_EQ(error_of(1, 32, set_by_one_branch, large.data(), out.data(), 60), "");
  for (const std::string& error :
       {error_of(1, 32, largest_by_comparison<float>, floats.data(), out.data(), 64),
        error_of(1, 32, largest_by_comparison<double>, doubles.data(), out.data(), 64),
        error_of(1, 32, largest_by_comparison<int>, ints.data(), out.data(), 64),
        error_of(1, 32, set_by_one_branch, large.data(), out.data(), 61),
        error_of(1, 32, largest_by_fmaxf, floats.data(), out.data())}) {
    EXPECT_NE(error.find(" at trace_memory_test.cu:"), error.npos) << error;
    EXPECT_NE(error.find("an uninitialised local variable"), error.npos) << error;
  }
}
#endif

constexpr int kCallLine = __LINE__ + 1;
__global__ void race_in_a_helper(float* out) { write_by_two_helpers(out); }
constexpr int kLaterCallLine = __LINE__ + 2;
__global__ void race_in_a_function(float* out, bool once) {
  if (once) return write_by_two_calls(out);
  write_by_two_calls(out + 1);
}

TEST_F(TraceMemory, AHelperIsNamedWithTheKernelsOwnLine) {
  const Values<float> out(32);
  const std::string error = error_of(1, 32, race_in_a_helper, out.data());
  EXPECT_NE(error.find("wrote at trace_memory_helper.cuh:8 from " + sim::line(kCallLine)), error.npos)
      << error;
}

#if defined(__x86_64__) || defined(__aarch64__)  // calls are recognised on these only
TEST_F(TraceMemory, AFunctionIsNamedWithTheCallsThatLeadThere) {
#ifdef __clang__
  GTEST_SKIP() << "clang++ turns a final call into a jump";
#endif
  const Values<float> out(32);
  const std::string error = error_of(1, 32, race_in_a_function, out.data(), true);
  EXPECT_NE(error.find("wrote at trace_memory_helper.cuh:8 from " + sim::line(kLaterCallLine)), error.npos)
      << error;
  EXPECT_NE(error.find(" or " + sim::line(kLaterCallLine + 1)), error.npos) << error;
}
#endif

TEST_F(TraceMemory, LocalsAndTheHostsMemoryAreOutOfReach) {
  const Values<float> out(std::vector<float>(32, 0.0f));
  sim::expect_in(error_of(1, 2, read_a_local_of_thread_0, out.data()),
                 "this is a local variable of thread 0");
  const std::vector<float> host(32);
  sim::expect_in(error_of(1, 32, read_through_a_struct, Rows{host.data()}, out.data()),
                 "host memory, an illegal address on a GPU");
}

TEST_F(TraceMemory, UndefinedResultsAreReported) {
  const Values<float> out(std::vector<float>(32, 0.0f));
  EXPECT_EQ(error_of(1, 32, shift, 31, out.data()), "");
  sim::expect_in(error_of(1, 32, shift, 32, out.data()), "an H200 shifts everything out");
  EXPECT_EQ(error_of(1, 32, convert, 1e9f, out.data()), "");
  sim::expect_in(error_of(1, 32, convert, 1e12f, out.data()), "the number is NaN or does not fit");
#ifndef __clang__
  EXPECT_EQ(error_of(1, 32, leave_an_array, 4, out.data()), "");
  sim::expect_in(error_of(1, 32, leave_an_array, 5, out.data()),
                 "beyond the array that it was computed from");
#endif
}

TEST_F(TraceMemory, SharedMemoryIsItsBlocksOwn) {
  for (const bool together : {false, true})
    for (const bool as_numbers : {false, true}) {
      const Values<const float*> place(std::vector<const float*>{nullptr});
      const Values<int> left(std::vector<int>{0});
      const Values<float> out(2);
      const std::string error =
          error_of(2, 1, leave_a_pointer, place.data(), left.data(), out.data(), together, as_numbers);
      if (as_numbers)
        EXPECT_EQ(error, "");
      else
        EXPECT_NE(error.find("On a GPU the same address refers to each block's own shared memory"),
                  error.npos)
            << error;
    }
}

}  // namespace
}  // namespace flashbook
