#include <set>

#include "chapters/00_the_machine/exercises/counts.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using machine::Counts;

/// How many different units of `size` bytes hold the `bytes` at each lane's address.
template <typename Address>
double units(int size, int bytes, Address address) {
  std::set<int> touched;
  for (int lane = 0; lane < 32; ++lane)
    for (int byte = 0; byte < bytes; ++byte) touched.insert((address(lane) + byte) / size);
  return double(touched.size());
}

/// Blocks of which `there` holds so many, each taking `each`.
int fitting(double there, double each) {
  int blocks = 0;
  while ((blocks + 1) * each <= there) ++blocks;
  return blocks;
}
int by_registers(const Counts& p) { return fitting(65536, p.registers * p.threads); }
int by_shared(const Counts& p) { return fitting(227, p.shared_kb); }

void expect_formula(double (Counts::*predicted)() const, double (*want)(const Counts&)) {
  expect_predicted<Counts>({{"registers", &Counts::registers, {32, 64, 128, 168, 248}},
                            {"threads", &Counts::threads, {64, 128, 192, 256}},
                            {"shared_kb", &Counts::shared_kb, {1, 24, 48, 80, 120, 200}},
                            {"stride", &Counts::stride, {1, 2, 5, 7, 12, 32}},
                            {"offset", &Counts::offset, {0, 8, 24, 40, 64, 96}},
                            {"word_stride", &Counts::word_stride, {1, 2, 7, 24, 33, 48, 64}},
                            {"latency", &Counts::latency, {500, 640, 900}},
                            {"bandwidth", &Counts::bandwidth, {2.0e12, 3.35e12, 8.0e12}},
                            {"queries", &Counts::queries, {64, 128, 192}},
                            {"keys", &Counts::keys, {64, 80, 176}},
                            {"head_dim", &Counts::head_dim, {64, 192, 256}}},
                           predicted, want);
}

TEST(MachineCounts, BlocksByRegisters) {
  expect_formula(&Counts::blocks_by_registers, [](const Counts& p) { return double(by_registers(p)); });
}
TEST(MachineCounts, BlocksByShared) {
  expect_formula(&Counts::blocks_by_shared, [](const Counts& p) { return double(by_shared(p)); });
}
TEST(MachineCounts, Occupancy) {
  expect_formula(&Counts::occupancy, [](const Counts& p) {
    return std::min({by_registers(p), by_shared(p), fitting(64 * 32, p.threads)}) * p.threads / (64 * 32);
  });
}
TEST(MachineCounts, Sectors) {
  expect_formula(&Counts::sectors, [](const Counts& p) {
    return units(32, 4, [&](int lane) { return 4 * int(p.stride) * lane; });
  });
}
TEST(MachineCounts, SectorsOfPairs) {
  expect_formula(&Counts::sectors_of_pairs, [](const Counts& p) {
    return units(32, 8, [&](int lane) { return int(p.offset) + 8 * lane; });
  });
}
TEST(MachineCounts, Wavefronts) {
  expect_formula(&Counts::wavefronts, [](const Counts& p) {
    return 32 /
           units(1, 1, [&](int lane) { return int(p.word_stride) * lane % 32; });  // all banks have as many
  });
}
TEST(MachineCounts, BytesUnderWay) {
  expect_formula(&Counts::bytes_under_way,
                 [](const Counts& p) { return p.latency / 1.8e9 * (p.bandwidth / 132); });
}
TEST(MachineCounts, ProductClocks) {
  expect_formula(&Counts::product_clocks,
                 [](const Counts& p) { return 4 * p.queries * p.keys * p.head_dim / 4096; });
}
TEST(MachineCounts, ExponentialClocks) {
  expect_formula(&Counts::exponential_clocks, [](const Counts& p) { return p.queries * p.keys / 16; });
}

}  // namespace
}  // namespace flashbook::testing
