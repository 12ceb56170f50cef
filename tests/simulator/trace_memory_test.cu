/// \file
/// The traced mode: unwritten memory, indices out of bounds, and variables of the device. This file is
/// instrumented (flashbook_traced).
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
__global__ void largest_of_all(int* out) { atomicMax(out, int(threadIdx.x)); }
__global__ void exchange(float* out) { out[1 + threadIdx.x] = atomicExch(&out[0], 1.0f); }
__global__ void poll(volatile int* flag) {
  while (*flag == 0) {
  }
}
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

// ---- indices out of bounds

struct Shared {
  float first[32], second[4][8], last[8];
};

__global__ void leave_static_array(float* out, int index) {
  __shared__ float first[32], second[32];
  first[threadIdx.x] = second[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x == 0) first[index] = 1;
  __syncthreads();
  out[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}
__global__ void leave_member(int index) { dynamic_shared<Shared>()->first[index] = 1; }
__global__ void leave_row(int index) { dynamic_shared<Shared>()->second[1][index] = 1; }
__global__ void leave_last_member(int index) { dynamic_shared<Shared>()->last[index] = 1; }
#ifndef __clang__  // clang does not track where a pointer comes from
__device__ float sum_of(const float* row, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += row[i];
  return sum;
}
__global__ void leave_array_by_pointer(float* out, int count) {
  __shared__ float rows[4][8], others[32];
  for (int i = threadIdx.x; i < 32; i += 32) rows[i / 8][i % 8] = others[i] = 1;
  __syncthreads();
  out[threadIdx.x] = sum_of(rows[0], count) + others[threadIdx.x];
}
__global__ void leave_local_by_pointer(float* out, int count) {
  float sums[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  out[threadIdx.x] = sum_of(sums, count);
}
#endif
__global__ void leave_local(float* out, int index) {
  float sums[8] = {};
  sums[index] += 1;
  for (const float* sum = sums; sum != &sums[8]; ++sum) out[threadIdx.x] = *sum;
}

// ---- uninitialised locals

#ifndef __clang__  // clang initialises locals to NaN
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // elsewhere an error of the build
__global__ void largest_of_row(const float* row, float* out, int count) {
  float largest;
  for (int i = int(threadIdx.x); i < count; i += 32) largest = fmaxf(largest, row[i]);
  out[threadIdx.x] = largest;
}
template <typename T>
__global__ void largest_by_comparison(const T* row, float* out, int count) {
  T largest;
  for (int i = int(threadIdx.x); i < count; i += 32)
    if (row[i] > largest) largest = row[i];
  out[threadIdx.x] = float(largest);
}
__global__ void set_by_one_branch(const int* row, float* out, int from) {
  int last;
  if (row[threadIdx.x] >= from) last = row[threadIdx.x];
  out[threadIdx.x] = last > 50 ? 1.0f : 0.0f;
}
#pragma GCC diagnostic pop
#endif

// ---- variables of the device

__device__ int counter;
__device__ float table[2][32];

__global__ void count(bool atomically) {
  if (atomically)
    atomicAdd(&counter, 1);
  else
    ++counter;
}
__global__ void turn_around(float* out, bool wait) {
  table[blockIdx.x][threadIdx.x] = float(threadIdx.x);
  if (wait) __syncthreads();
  out[threadIdx.x] = table[blockIdx.x][31 - threadIdx.x];
}
__global__ void leave_table(int index) { table[1][index] = 0; }

// ---- memory outside the device

struct Places {
  const float* in;
  float* out;
};
__global__ void follow(Places places) { places.out[threadIdx.x] = places.in[threadIdx.x]; }
__global__ void follow_table(const float* const* in, float* out) { out[threadIdx.x] = in[0][threadIdx.x]; }

__global__ void use_a_local_of_another(float* out, unsigned whose) {
  __shared__ const float* shared;
  const float mine[2] = {float(threadIdx.x), out[threadIdx.x]};
  if (threadIdx.x == whose) shared = mine;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x == whose] + mine[1];
  __syncthreads();
}
__global__ void use_own_local(float* out) {
  float mine[2] = {float(threadIdx.x), out[threadIdx.x]};
  float* const place = mine + threadIdx.x % 2;
  __syncthreads();
  out[threadIdx.x] = *place;
}

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

// ---- blocks that take tiles from a counter

__global__ void take_tiles(float* out,  // [tiles][32]
                           unsigned* counter, unsigned tiles, unsigned numbers) {
  __shared__ unsigned next;
  for (;;) {
    if (threadIdx.x == 0) next = atomicAdd(counter, 1u);
    __syncthreads();
    const unsigned tile = next;
    __syncthreads();
    if (tile >= tiles) return;
    if (threadIdx.x < numbers) out[tile * 32 + threadIdx.x] = float(tile);
  }
}

// Tests.

using TraceMemory = sim::SimulatorTest;

template <typename... Params, typename... Args>
std::string error_of(unsigned blocks, unsigned threads, void (*kernel)(Params...), Args... args) {
  try {
    device::launch(kernel, blocks, threads, sizeof(Shared), nullptr, args...);
  } catch (const device::DeviceError& error) {
    return error.what();
  }
  return "";
}

void expect_unwritten(const std::string& error) {
  EXPECT_NE(error.find("uninitialised device memory is read in block 0, global memory"), error.npos) << error;
  EXPECT_NE(error.find("trace_memory_test.cu:"), error.npos) << error;
}

TEST_F(TraceMemory, DeviceMemoryThatNobodyHasWritten) {
  const Values<float> fresh(64), from_host(std::vector<float>(64, -1.0f)), out(64);
  expect_unwritten(error_of(1, 32, largest, fresh.data(), out.data()));
  EXPECT_EQ(error_of(1, 32, largest, from_host.data(), out.data()), "");
  expect_unwritten(error_of(1, 32, largest_of_all, Values<int>(1).data()));
  expect_unwritten(error_of(1, 1, poll, Values<int>(1).data()));
  EXPECT_EQ(error_of(1, 32, largest_of_all, Values<int>(std::vector<int>{-1}).data()), "");
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

TEST_F(TraceMemory, IndicesStayInTheirArrays) {
  const Values<float> out(32);
  EXPECT_EQ(error_of(1, 32, leave_static_array, out.data(), 31), "");
  EXPECT_EQ(error_of(1, 1, leave_member, 31), "");
  EXPECT_EQ(error_of(1, 1, leave_row, 7), "");
  EXPECT_EQ(error_of(1, 1, leave_last_member, 7), "");
  EXPECT_EQ(error_of(1, 1, leave_local, out.data(), 7), "");
  EXPECT_NE(error_of(1, 1, leave_local, out.data(), 8).find("out of bounds, "), std::string::npos);
  EXPECT_EQ(error_of(1, 1, leave_table, 31), "");
  for (const auto& [error, says] :
       {std::pair(error_of(1, 32, leave_static_array, out.data(), 32), "32 in an array of type 'float [32]'"),
        std::pair(error_of(1, 1, leave_member, 32), "32 in an array of type 'float [32]'"),
        std::pair(error_of(1, 1, leave_row, 8), "8 in an array of type 'float [8]'"),
        std::pair(error_of(1, 1, leave_last_member, 8), "8 in an array of type 'float [8]'"),
        std::pair(error_of(1, 1, leave_table, 32), "32 in an array of type 'float [32]'")}) {
    EXPECT_NE(error.find("index at trace_memory_test.cu:"), error.npos) << error;
    const auto without_spaces = [](std::string text) {  // g++ and clang++ spell the type differently
      std::erase(text, ' ');
      return text;
    };
    EXPECT_NE(without_spaces(error).find(without_spaces(std::string("out of bounds, ") + says)), error.npos)
        << error;
  }
}

#ifndef __clang__  // clang does not track where a pointer comes from, and initialises locals to NaN
TEST_F(TraceMemory, PointersStayInTheirArrays) {
  const Values<float> out(32);
  EXPECT_EQ(error_of(1, 32, leave_array_by_pointer, out.data(), 32), "");
  EXPECT_EQ(error_of(1, 1, leave_local_by_pointer, out.data(), 8), "");
  for (const std::string& error : {error_of(1, 32, leave_array_by_pointer, out.data(), 33),
                                   error_of(1, 1, leave_local_by_pointer, out.data(), 9)}) {
    EXPECT_NE(error.find("pointer at trace_memory_test.cu:"), error.npos) << error;
    EXPECT_NE(error.find("beyond the array that it was computed from"), error.npos) << error;
  }
}

TEST_F(TraceMemory, MaximaBeginWithAValue) {
  const Values<float> row(std::vector<float>(64, -1.0f)), out(32);
  const std::string error = error_of(1, 32, largest_of_row, row.data(), out.data(), 64);
  EXPECT_NE(error.find("fmaxf at trace_memory_test.cu:"), error.npos) << error;
  EXPECT_NE(error.find("an uninitialised local variable"), error.npos) << error;
}

TEST_F(TraceMemory, ComparisonsBeginWithAValue) {
  const Values<float> floats(std::vector<float>(64, -1.0f)), out(32);
  const Values<double> doubles(std::vector<double>(64, -1.0));
  const Values<int> ints(std::vector<int>(64, -1)), large(std::vector<int>(32, 60));
  EXPECT_EQ(error_of(1, 32, set_by_one_branch, large.data(), out.data(), 60), "");
  for (const std::string& error :
       {error_of(1, 32, largest_by_comparison<float>, floats.data(), out.data(), 64),
        error_of(1, 32, largest_by_comparison<double>, doubles.data(), out.data(), 64),
        error_of(1, 32, largest_by_comparison<int>, ints.data(), out.data(), 64),
        error_of(1, 32, set_by_one_branch, large.data(), out.data(), 61)}) {
    EXPECT_NE(error.find("comparison at trace_memory_test.cu:"), error.npos) << error;
    EXPECT_NE(error.find("an uninitialised local variable"), error.npos) << error;
  }
}
#endif

TEST_F(TraceMemory, VariablesOfTheDevice) {
  const Values<float> out(32);
  EXPECT_EQ(error_of(4, 1, count, true), "");
  EXPECT_NE(error_of(4, 1, count, false).find("data race between blocks on global memory"),
            std::string::npos);
  EXPECT_EQ(error_of(1, 32, turn_around, out.data(), true), "");
  EXPECT_NE(error_of(1, 32, turn_around, out.data(), false).find("data race in block 0 on global memory"),
            std::string::npos);
}

TEST_F(TraceMemory, LocalsBelongToTheirThread) {
  const Values<float> out(std::vector<float>(64, 1.0f));
  EXPECT_EQ(error_of(1, 64, use_own_local, out.data()), "");
  for (const unsigned whose : {0u, 31u, 63u}) {
    const std::string error = error_of(1, 64, use_a_local_of_another, out.data(), whose);
    EXPECT_NE(error.find("load at trace_memory_test.cu:"), error.npos) << error;
    EXPECT_NE(error.find("this is a local variable of thread " + std::to_string(whose)), error.npos) << error;
  }
}

TEST_F(TraceMemory, FreedMemoryIsNamed) {
  const Values<float> out(32);
  const float* freed;
  {
    const Values<float> gone(std::vector<float>(64, 1.0f));
    freed = gone.data();
  }
  const std::string error = error_of(1, 32, follow, Places{freed, out.data()});
  EXPECT_NE(error.find("(0 bytes into memory that has been freed, formerly an allocation of 256 bytes)"),
            error.npos)
      << error;
}

TEST_F(TraceMemory, HostMemoryIsReportedWhereAKernelFollowsAPointer) {
  const std::vector<float> host(32, 1.0f);
  const Values<float> in(host), out(32);
  EXPECT_EQ(error_of(1, 32, follow, Places{in.data(), out.data()}), "");
  const Values<const float*> table(std::vector<const float*>{in.data(), host.data()});
  EXPECT_EQ(error_of(1, 32, follow_table, table.data(), out.data()), "");
  for (const std::string& error : {error_of(1, 32, follow, Places{host.data(), out.data()}),
                                   error_of(1, 32, follow_table, table.data() + 1, out.data())}) {
    EXPECT_NE(error.find("load of 4 bytes at trace_memory_test.cu:"), error.npos) << error;
    EXPECT_NE(error.find(": host memory, an illegal address on a GPU"), error.npos) << error;
  }
}

TEST_F(TraceMemory, NoBlockTakesAllTilesOfAPersistentKernel) {
  sim::options().os_threads = 2;
  const auto error = [](unsigned numbers) {
    const Values<float> out(9 * 32);
    const Values<unsigned> counter(std::vector<unsigned>{0});
    return error_of(4, 64, take_tiles, out.data(), counter.data(), 8, numbers);
  };
  EXPECT_EQ(error(32), "");
  EXPECT_NE(error(33).find("data race between blocks on global memory"), std::string::npos);
}

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
