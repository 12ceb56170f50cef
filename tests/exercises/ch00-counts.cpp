#include <algorithm>
#include <set>
#include <vector>

#include "chapters/00_the_machine/exercises/counts.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

constexpr double kTolerance = 0.005;
constexpr int kWarps = 128 / 32;  // of a block

int blocks_by_registers() { return 65536 / (96 * 128); }
int blocks_by_shared() { return 227 / 64; }

/// How many different units of `size` bytes hold the `bytes` at each lane's address.
template <typename Address>
std::size_t units(int size, int bytes, Address address) {
  std::set<int> touched;
  for (int lane = 0; lane < 32; ++lane)
    for (int byte = 0; byte < bytes; ++byte) touched.insert((address(lane) + byte) / size);
  return touched.size();
}

TEST(MachineCounts, BlocksByRegisters) {
  expect_predicted(machine::kBlocksByRegisters, blocks_by_registers(), kTolerance);
}
TEST(MachineCounts, BlocksByShared) {
  expect_predicted(machine::kBlocksByShared, blocks_by_shared(), kTolerance);
}
TEST(MachineCounts, Occupancy) {
  expect_predicted(machine::kOccupancy, std::min(blocks_by_registers(), blocks_by_shared()) * kWarps / 64.0,
                   kTolerance);
}
TEST(MachineCounts, SectorsOfX) {
  expect_predicted(machine::kSectorsOfX, double(units(32, 4, [](int lane) { return 12 * lane; })),
                   kTolerance);
}
TEST(MachineCounts, SectorsShifted) {
  expect_predicted(machine::kSectorsShifted, double(units(32, 8, [](int lane) { return 16 + 8 * lane; })),
                   kTolerance);
}
TEST(MachineCounts, Wavefronts) {
  std::vector<int> words(32);  // of each bank
  for (int lane = 0; lane < 32; ++lane) ++words[std::size_t(12 * lane % 32)];
  expect_predicted(machine::kWavefronts, *std::max_element(words.begin(), words.end()), kTolerance);
}
TEST(MachineCounts, BytesUnderWay) {
  const double of_a_multiprocessor = 4.8e12 / 132;  // bytes a second
  expect_predicted(machine::kBytesUnderWay, of_a_multiprocessor * 700 / 1.8e9, kTolerance);
}
TEST(MachineCounts, ProductClocks) {
  expect_predicted(machine::kProductClocks, 4.0 * 128 * 128 * 128 / 4096, kTolerance);
}
TEST(MachineCounts, ExponentialClocks) {
  expect_predicted(machine::kExponentialClocks, 128.0 * 128 / 16, kTolerance);
}

}  // namespace
}  // namespace flashbook::testing
