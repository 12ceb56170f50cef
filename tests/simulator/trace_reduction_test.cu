/// \file
/// Races in global memory that involve reductions and hand-overs. This file is instrumented
/// (flashbook_traced).
#include <string>
#include <vector>

#include "common/device/launch.h"
#include "common/ptx/atomic.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/dependent_launch.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

/// The error of a kernel.
enum class Wrong {
  nothing,
  read_only_wait,   // waits until the tile has been read, instead of tma_store_wait
  relaxed_arrival,  // counts without a release
  plain_add,        // one block adds by a plain load and store
  plain_read,       // reads the sum without waiting for all blocks
  no_fence,
  fence_of_shared_memory,
  no_wait_between,
  no_barrier
};

constexpr unsigned kThreads = 64, kBlocks = 3;
constexpr uint32_t kBytes = kThreads * sizeof(float);

constexpr int kReadLine = __LINE__ + 22;
/// Every block adds a tile to the sum, and the last one to arrive reads it.
__global__ void add_and_read(float* sum, unsigned* arrived, float* out, Wrong wrong) {
  auto* tile = dynamic_shared<float>();
  __shared__ bool is_last;
  tile[threadIdx.x] = 1;
  fence_proxy_async();
  __syncthreads();
  if (wrong == Wrong::plain_add && blockIdx.x == 1) sum[threadIdx.x] += 1;
  if (threadIdx.x == 0) {
    bulk_reduce_add(sum, tile, kBytes);
    tma_store_commit();
    if (wrong == Wrong::read_only_wait)
      tma_store_wait_read<0>();
    else
      tma_store_wait<0>();
    if (wrong == Wrong::relaxed_arrival)
      is_last = atomicAdd(arrived, 1u) == kBlocks - 1;
    else
      is_last = atomic_add_acq_rel(arrived, 1u) == kBlocks - 1;
  }
  __syncthreads();
  if (is_last || wrong == Wrong::plain_read) out[threadIdx.x] = sum[threadIdx.x];
  if (threadIdx.x == 0) tma_store_wait<0>();
}

/// One block writes by plain stores, and the next loads the row, or adds to it, by TMA.
__global__ void write_and_hand_over(float* row, int* flag, Wrong wrong, bool reader_fences, bool adds) {
  auto* tile = dynamic_shared<float>();
  __shared__ uint64_t full;
  const auto fence = [wrong] {
    if (wrong == Wrong::fence_of_shared_memory) fence_proxy_async();
    if (wrong != Wrong::no_fence && wrong != Wrong::fence_of_shared_memory) fence_proxy_async_global();
  };
  if (blockIdx.x == 0) {
    row[threadIdx.x] = 1;
    if (!reader_fences) fence();
    __syncthreads();
    if (threadIdx.x == 0) store_release(flag, 1);
    return;
  }
  tile[threadIdx.x] = 1;
  fence_proxy_async();
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  while (load_acquire(flag) == 0) {
  }
  if (reader_fences) fence();
  if (adds) {
    bulk_reduce_add(row, tile, kBytes);
    tma_store_commit();
    tma_store_wait_read<0>();
  } else {
    mbarrier_arrive_expect_tx(&full, kBytes);
    bulk_load(tile, row, kBytes, &full);
    mbarrier_wait(&full, 0);
  }
}

/// Adds 1 to each element, like the launch before this one.
__global__ void add_after(float* row, Wrong wrong) {
  if (threadIdx.x == 0 && wrong != Wrong::no_wait_between) wait_for_launch_before();
  if (wrong != Wrong::no_barrier) __syncthreads();
  row[threadIdx.x] += 1;
}

/// The behaviour of the second of three dependent launches.
enum class Middle { waits_first, waits_late, never_waits };

__global__ void first_of_chain(float* row) {
  let_dependents_launch();
  row[threadIdx.x] = 1;
}
__global__ void middle_of_chain(Middle middle) {
  if (middle == Middle::waits_first) wait_for_launch_before();
  let_dependents_launch();
  if (middle == Middle::waits_late) wait_for_launch_before();
}
/// Reads or overwrites the output of the first launch.
__global__ void last_of_chain(float* row, float* out, bool early, bool reads) {
  if (!early) wait_for_launch_before();
  if (reads)
    out[threadIdx.x] = row[threadIdx.x];
  else
    row[threadIdx.x] = 2;
}

/// A thread clears a row by TMA and adds to it.
__global__ void clear_and_add(float* row, Wrong wrong) {
  auto* tiles = dynamic_shared<float>();
  tiles[threadIdx.x] = 0;
  tiles[kThreads + threadIdx.x] = 1;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  bulk_store(row, tiles, kBytes);
  tma_store_commit();
  if (wrong != Wrong::no_wait_between) tma_store_wait<0>();
  bulk_reduce_add(row, tiles + kThreads, kBytes);
  tma_store_commit();
  tma_store_wait_read<0>();
}

/// Adds a tile to a sum that only the host may have cleared.
__global__ void add_to(float* sum) {
  auto* tile = dynamic_shared<float>();
  tile[threadIdx.x] = 1;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  bulk_reduce_add(sum, tile, kBytes);
  tma_store_commit();
  tma_store_wait<0>();
}

class TraceReduction : public sim::SimulatorTest {
 protected:
  TraceReduction() { sim::options().os_threads = 1; }

  std::string adds(Wrong wrong) {
    const Values<float> sum(std::vector<float>(kThreads, 0.0f)), out(kThreads);
    const Values<unsigned> arrived(std::vector<unsigned>{0});
    return sim::error_of(kBlocks, kThreads, kBytes,
                         [&] { add_and_read(sum.data(), arrived.data(), out.data(), wrong); });
  }
  std::string hands_over(Wrong wrong, bool reader_fences, bool adds) {
    const Values<float> row(kThreads);
    const Values<int> flag(std::vector<int>{0});
    return sim::error_of(2, kThreads, kBytes,
                         [&] { write_and_hand_over(row.data(), flag.data(), wrong, reader_fences, adds); });
  }
  std::string adds_after(Wrong wrong, bool dependent) {
    const Values<float> row(std::vector<float>(kThreads, 0.0f));
    try {
      device::launch(add_after, 1, kThreads, 0, nullptr, row.data(), Wrong::nothing);
      if (dependent)
        device::launch_dependent(add_after, 1, kThreads, 0, nullptr, row.data(), wrong);
      else
        device::launch(add_after, 1, kThreads, 0, nullptr, row.data(), wrong);
    } catch (const device::DeviceError& error) {
      return error.what();
    }
    return "";
  }
  std::string chains(Middle middle, bool early, bool reads, bool dependent = true) {
    const Values<float> row(kThreads), out(kThreads);
    try {
      device::launch(first_of_chain, 1, kThreads, 0, nullptr, row.data());
      device::launch(dependent ? device::Start::dependent : device::Start::plain, middle_of_chain, 1,
                     kThreads, 0, nullptr, middle);
      device::launch_dependent(last_of_chain, 1, kThreads, 0, nullptr, row.data(), out.data(), early, reads);
    } catch (const device::DeviceError& error) {
      return error.what();
    }
    return "";
  }
  std::string clears(Wrong wrong) {
    const Values<float> row(kThreads);
    return sim::error_of(1, kThreads, 2 * kBytes, [&] { clear_and_add(row.data(), wrong); });
  }
};

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), text.npos) << text << "\nlacks: " << part;
}

TEST_F(TraceReduction, NobodyWhoIsRightIsAccused) {
  for (const sim::Async async : {sim::Async::lazy, sim::Async::eager, sim::Async::random}) {
    sim::options().async = async;
    EXPECT_EQ(adds(Wrong::nothing), "");
    EXPECT_EQ(clears(Wrong::nothing), "");
    for (const bool reader_fences : {false, true})
      for (const bool adds : {false, true}) EXPECT_EQ(hands_over(Wrong::nothing, reader_fences, adds), "");
  }
}

TEST_F(TraceReduction, ASumIsReadWhenItHasLandedAndAllKnow) {
  const std::string only_read = adds(Wrong::read_only_wait);
  expect_in(only_read, "updated atomically at bulk_reduce_add at trace_reduction_test.cu:");
  expect_in(only_read, "read at " + sim::line(kReadLine));
  expect_in(adds(Wrong::relaxed_arrival), "read at " + sim::line(kReadLine));
  expect_in(adds(Wrong::plain_read), "read at " + sim::line(kReadLine));
}

TEST_F(TraceReduction, ASumBeginsWithANumber) {
  const Values<float> zeros(std::vector<float>(kThreads, 0.0f)), unwritten(kThreads);
  const auto error_with = [](float* sum) { return sim::error_of(1, kThreads, kBytes, [=] { add_to(sum); }); };
  EXPECT_EQ(error_with(zeros.data()), "");
  const std::string error = error_with(unwritten.data());
  expect_in(error, "uninitialised device memory is read in block 0");
  expect_in(error, "read at bulk_reduce_add at trace_reduction_test.cu:");
}

TEST_F(TraceReduction, PlainAdditionsRaceWithAtomicOnes) {
  expect_in(adds(Wrong::plain_add), "updated atomically at bulk_reduce_add at trace_reduction_test.cu:");
}

TEST_F(TraceReduction, TmaSeesPlainStoresOfAnotherBlockAfterAFenceForGlobalMemory) {
  for (const Wrong wrong : {Wrong::no_fence, Wrong::fence_of_shared_memory})
    for (const bool reader_fences : {false, true})
      for (const bool adds : {false, true})
        expect_in(hands_over(wrong, reader_fences, adds), "must call fence_proxy_async_global");
}

TEST_F(TraceReduction, ADependentLaunchWaits) {
  EXPECT_EQ(adds_after(Wrong::nothing, true), "");
  EXPECT_EQ(adds_after(Wrong::no_wait_between, false), "") << "launches follow each other otherwise";
  for (const Wrong wrong : {Wrong::no_wait_between, Wrong::no_barrier}) {
    const std::string error = adds_after(wrong, true);
    expect_in(error, "data race with the previous launch");
    expect_in(error, "call wait_for_launch_before");
  }
}

TEST_F(TraceReduction, EachOfAChainOfDependentLaunchesWaits) {
  for (const bool reads : {false, true}) {
    for (const bool early : {false, true}) {
      EXPECT_EQ(chains(Middle::waits_first, early, reads), "");
      EXPECT_EQ(chains(Middle::never_waits, early, reads, false), "")
          << "a plain launch waits for all before it";
      const std::string error = chains(Middle::never_waits, early, reads);
      expect_in(error, "the launch 2 before this one, in block 0, wrote at trace_reduction_test.cu:");
      expect_in(error, "every kernel must call wait_for_launch_before");
    }
    EXPECT_EQ(chains(Middle::waits_late, false, reads), "");
    expect_in(chains(Middle::waits_late, true, reads), "or there ahead of let_dependents_launch");
  }
}

TEST_F(TraceReduction, BulkOperationsOfOneThreadHaveNoOrder) {
  const std::string error = clears(Wrong::no_wait_between);
  expect_in(error, "the async proxy wrote at bulk_store at trace_reduction_test.cu:");
  expect_in(error, "the async proxy updated atomically at bulk_reduce_add at trace_reduction_test.cu:");
}

}  // namespace
}  // namespace flashbook
