#include "chapters/09_masks/exercises/longer_sequences.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

/// Numbers that count their reads.
struct Counted {
  const int* numbers;
  int* reads;

  __device__ int operator[](int i) const {
    atomicAdd(reads, 1);
    return numbers[i];
  }
};

/// Searches for every limit. One warp.
__global__ void search(const int* numbers, int count, int limits,
                       float* found,    // [limits, 32]
                       float* reads) {  // [limits]
  __shared__ int of_limit;
  for (int limit = 0; limit < limits; ++limit) {
    if (threadIdx.x == 0) of_limit = 0;
    __syncwarp();  // no lane has counted yet
    found[limit * 32 + threadIdx.x] = float(masks::how_many_above(Counted{numbers, &of_limit}, count, limit));
    __syncwarp();  // all lanes have counted
    if (threadIdx.x == 0) reads[limit] = float(of_limit);
  }
}

constexpr int kAny = 1 << 20;

/// `most_reads`: the limit for all lanes together.
void expect_found(const std::vector<int>& numbers, int most_reads = kAny) {
  const int limits = numbers.front() + 1, count = int(numbers.size());
  std::vector<int> more = numbers;
  more.resize(numbers.size() + 64, kAny);  // above all limits, and none of the `count` numbers
  device::Buffer buffer(device::Place::device, more.size() * sizeof(int));
  buffer.upload(std::as_bytes(std::span(more)));
  const DeviceArray found(DType::f32, std::size_t(limits) * 32), reads(DType::f32, limits);
  run(search, dim3(1), dim3(32), 0, static_cast<const int*>(buffer.data()), count, limits, found.as<float>(),
      reads.as<float>());
  const std::vector<float> got = found.download(), counted = reads.download();
  Comparison comparison;
  for (int i = 0; i < limits * 32; ++i) {
    int want = 0;
    while (want < count && numbers[want] > i / 32) ++want;
    comparison.expect(got[i], want, 0, [&] {
      return "in lane " + std::to_string(i % 32) + ", how many of " + std::to_string(count) + " are above " +
             std::to_string(i / 32) + ",";
    });
  }
  comparison.finish();
  for (int limit = 0; limit < limits; ++limit)
    EXPECT_LE(counted[limit], most_reads) << "the number of reads for the limit " << limit;
}

/// Returns `count` numbers that descend from `first`, each `times` times, but not below 0.
std::vector<int> stairs(int count, int first, int times) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(std::max(first - i / times, 0));
  return numbers;
}

class Search : public MachineTest {};

TEST_F(Search, OfOneSequence) { expect_found({5}); }
TEST_F(Search, OfAFew) { expect_found({9, 7, 4, 3, 1}); }
TEST_F(Search, OfEqualSequences) { expect_found({6, 6, 6, 4, 4, 4, 4, 2, 2}); }
TEST_F(Search, OfAsManyAsLanes) { expect_found(stairs(32, 40, 1)); }
TEST_F(Search, OfMoreThanLanes) { expect_found(stairs(100, 60, 2)); }
TEST_F(Search, OfAThousandInAFewReads) { expect_found(stairs(1000, 30, 37), 3 * 32); }

}  // namespace
}  // namespace flashbook::testing
