// Queues, events and copies between devices on the machine of this build; and the effects of a missing wait,
// which are certain in the simulator and possible on a GPU.
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/device/launch.h"
#include "common/device/queue.h"
#include "tests/require_gpu.h"
#ifndef __CUDACC__
#include "tests/simulator/simulated.h"
#endif

namespace flashbook {
namespace {

using device::Buffer, device::Event, device::Place, device::Queue;

constexpr int kCount = 1000, kRanks = 3;

__global__ void add(float* to, const float* from, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] += from[i];
}

/// The wait that a ring omits.
enum class Missing { nothing, arrival, neighbours_arrival, own_kernel, neighbours_copy };

/// Adds up the blocks of all ranks on every rank, as ring attention does with keys: while a kernel adds one
/// block, the next one arrives from the neighbour. Returns rank 1's first and last sum.
std::vector<float> ring(Missing missing) {
  struct Rank {
    int device;
    std::unique_ptr<Queue> compute, copies;
    std::vector<Buffer> blocks;  // two: one is added while the other arrives
    Buffer sum;
    std::vector<Event> arrived, added;  // per round

    float* block(int round) const { return static_cast<float*>(blocks[std::size_t(round % 2)].data()); }
  };
  const std::vector<float> zeros(kCount);
  std::vector<Rank> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const int device = rank % device::device_count();
    device::use_device(device);
    std::vector<Buffer> blocks;
    for (int i = 0; i < 2; ++i) blocks.emplace_back(Place::device, kCount * sizeof(float));
    const std::vector<float> own(kCount, float(1 << rank));
    blocks[0].upload(std::as_bytes(std::span(own)));
    Buffer sum(Place::device, kCount * sizeof(float));
    sum.upload(std::as_bytes(std::span(zeros)));
    ranks.push_back({device, std::make_unique<Queue>(), std::make_unique<Queue>(), std::move(blocks),
                     std::move(sum), std::vector<Event>(kRanks + 1), std::vector<Event>(kRanks + 1)});
  }
  for (int round = 0; round < kRanks; ++round) {
    for (int rank = 0; rank < kRanks; ++rank) {
      Rank& mine = ranks[std::size_t(rank)];
      const Rank &from = ranks[std::size_t((rank + 1) % kRanks)],
                 &to = ranks[std::size_t((rank + 2) % kRanks)];
      device::use_device(mine.device);
      if (round + 1 < kRanks) {
        if (missing != Missing::neighbours_arrival) mine.copies->wait_for(from.arrived[std::size_t(round)]);
        if (round > 0) {  // what is overwritten now
          if (missing != Missing::own_kernel) mine.copies->wait_for(mine.added[std::size_t(round - 1)]);
          if (missing != Missing::neighbours_copy) mine.copies->wait_for(to.arrived[std::size_t(round)]);
        }
        device::copy_async(mine.copies->stream(), mine.block(round + 1), from.block(round),
                           kCount * sizeof(float));
        mine.arrived[std::size_t(round + 1)] = mine.copies->record();
      }
      if (missing != Missing::arrival) mine.compute->wait_for(mine.arrived[std::size_t(round)]);
      device::launch(add, dim3((kCount + 127) / 128), dim3(128), 0, mine.compute->stream(),
                     static_cast<float*>(mine.sum.data()), mine.block(round), kCount);
      mine.added[std::size_t(round)] = mine.compute->record();
    }
  }
  std::vector<float> sums;
  for (const Rank& rank : ranks) {
    std::vector<float> values(kCount);
    rank.compute->synchronize();  // another device's memory can be read before its queue is done
    rank.sum.download(std::as_writable_bytes(std::span(values)));
    sums.insert(sums.end(), {values.front(), values.back()});
  }
  device::use_device(0);
  return sums;
}

const std::vector<float> kRight(2 * kRanks, (1 << kRanks) - 1);

using QueueTest = MachineTest;

TEST_F(QueueTest, ARingAddsUpWhatItsRanksHave) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ring(Missing::nothing), kRight);
}

TEST_F(QueueTest, RowsAreTakenFromStripesAndPutIntoOthers) {
  constexpr int kRows = 5, kWidth = 3, kFrom = 4, kTo = 7;  // floats
  const std::vector<float> zeros(kRows * kTo);
  std::vector<float> numbers(kRows * kFrom);
  std::iota(numbers.begin(), numbers.end(), 1.0f);
  Buffer from(Place::device, numbers.size() * sizeof(float));
  from.upload(std::as_bytes(std::span(numbers)));
  device::use_device(device::device_count() - 1);
  Buffer to(Place::device, zeros.size() * sizeof(float));
  device::use_device(0);
  Queue queue;
  const std::pair<int, int> pitches[] = {{kTo, kFrom}, {kWidth, kFrom}, {kTo, kWidth}, {kWidth, kWidth}};
  for (const device::Stream stream : {device::Stream(nullptr), queue.stream()})
    for (const auto& [to_pitch, from_pitch] : pitches) {
      std::vector<float> values(zeros.size()), wanted = zeros;
      to.upload(std::as_bytes(std::span(zeros)));
      device::copy_rows_async(stream, to.data(), std::size_t(to_pitch) * sizeof(float), from.data(),
                              std::size_t(from_pitch) * sizeof(float), kWidth * sizeof(float), kRows);
      queue.synchronize();
      device::synchronize();
      to.download(std::as_writable_bytes(std::span(values)));
      for (int row = 0; row < kRows; ++row)
        for (int i = 0; i < kWidth; ++i)
          wanted[std::size_t(row * to_pitch + i)] = numbers[std::size_t(row * from_pitch + i)];
      EXPECT_EQ(values, wanted) << to_pitch << " " << from_pitch;
    }
}

#ifndef __CUDACC__  // guaranteed by the simulator only

class SimulatedQueues : public sim::SimulatorTest {
 protected:
  /// Returns the error that `work` reports in all orders; empty if it is correct in all.
  template <typename Work>
  static std::string in_any_order(const Work& work) {
    for (const sim::Async async : {sim::Async::eager, sim::Async::lazy, sim::Async::random})
      for (uint64_t seed = 1; seed <= (async == sim::Async::random ? 16u : 1u); ++seed) {
        sim::options().async = async;
        sim::options().seed = seed;
        if (!work()) return "wrong in mode " + std::to_string(int(async)) + ", seed " + std::to_string(seed);
      }
    return "";
  }
  static const float* first(const Buffer& buffer) { return static_cast<const float*>(buffer.data()); }
};

TEST_F(SimulatedQueues, AMissingWaitShowsInSomeOrder) {
  const auto says = [](Missing missing) { return in_any_order([&] { return ring(missing) == kRight; }); };
  EXPECT_EQ(says(Missing::nothing), "");
  for (const Missing missing :
       {Missing::arrival, Missing::neighbours_arrival, Missing::own_kernel, Missing::neighbours_copy})
    EXPECT_NE(says(missing), "") << int(missing);
}

TEST_F(SimulatedQueues, CopiesLandWhenSomebodyWaits) {
  sim::options().async = sim::Async::lazy;
  Buffer from(Place::device, 4), to(Place::device, 4), other(Place::device, 4);
  const std::vector<float> seven{7}, eight{8};
  from.upload(std::as_bytes(std::span(seven)));
  to.upload(std::as_bytes(std::span(eight)));
  other.upload(std::as_bytes(std::span(eight)));
  Queue queue, idle;
  device::copy_async(queue.stream(), to.data(), from.data(), 4);
  const Event copied = queue.record();
  device::copy_async(queue.stream(), other.data(), from.data(), 4);
  idle.synchronize();
  EXPECT_EQ(*first(to), 8);
  idle.wait_for(copied);
  idle.synchronize();
  EXPECT_EQ(*first(to), 7);
  EXPECT_EQ(*first(other), 8);  // not waited for yet
  device::synchronize();
  EXPECT_EQ(*first(other), 7);
}

TEST_F(SimulatedQueues, AFaultIsReportedToWhoeverWaits) {
  sim::options().async = sim::Async::lazy;
  Buffer values(Place::device, 4);
  Queue queue;
  device::launch(add, dim3(1), dim3(2048), 0, queue.stream(), static_cast<float*>(values.data()),
                 static_cast<const float*>(values.data()), 1);
  try {
    queue.synchronize();
    FAIL() << "a block of 2048 threads ran";
  } catch (const device::DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("<<<(1,1,1), (2048,1,1), 0>>>: a block of"), std::string::npos)
        << error.what();
  }
  queue.synchronize();  // the error is reported once
}

TEST_F(SimulatedQueues, DevicesHaveTheirMemoryAndQueues) {
  const Buffer mine(Place::device, 4);
  device::use_device(1);
  const Buffer others(Place::device, 4);
  Queue queue;
  device::use_device(0);
  const auto error_of = [&](const Buffer& from, device::Stream stream) -> std::string {
    try {
      device::launch(add, dim3(1), dim3(1), 0, stream, static_cast<float*>(mine.data()),
                     static_cast<const float*>(from.data()), 0);
    } catch (const device::DeviceError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(mine, nullptr), "");
  EXPECT_NE(error_of(others, nullptr).find("points to memory of device 1, and the kernel runs on device 0"),
            std::string::npos);
  EXPECT_NE(error_of(mine, queue.stream()).find("names a queue of device 1"), std::string::npos);
  EXPECT_THROW(device::copy_async(queue.stream(), mine.data(), others.data(), 5), device::DeviceError);
  EXPECT_THROW(device::copy_rows_async(queue.stream(), mine.data(), 2, others.data(), 4, 2, 2),
               device::DeviceError);  // six bytes of four
  EXPECT_THROW(device::copy_rows_async(nullptr, mine.data(), 1, others.data(), 2, 2, 1), device::DeviceError);
}

#endif

}  // namespace
}  // namespace flashbook
