#include <algorithm>
#include <set>
#include <vector>

#include "chapters/00_the_machine/exercises/counts.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using machine::Counts;

double blocks_by_registers(const Counts& p) { return int(65536 / (p.registers * p.threads)); }
double blocks_by_shared(const Counts& p) { return int(227 / p.shared_kb); }

/// How many different units of `size` bytes hold the `bytes` at each lane's address.
template <typename Address>
double units(int size, int bytes, Address address) {
  std::set<int> touched;
  for (int lane = 0; lane < 32; ++lane)
    for (int byte = 0; byte < bytes; ++byte) touched.insert((address(lane) + byte) / size);
  return double(touched.size());
}

void expect_formula(double (Counts::*predicted)() const, double (*want)(const Counts&)) {
  expect_predicted<Counts>({{"registers", &Counts::registers, {40, 64, 100, 168, 255}},
                            {"threads", &Counts::threads, {64, 96, 256}},
                            {"shared_kb", &Counts::shared_kb, {20, 33, 48, 100, 227}},
                            {"floats", &Counts::floats, {1, 2, 4, 5, 6, 12}},
                            {"offset", &Counts::offset, {0, 8, 24, 32, 56}},
                            {"stride", &Counts::stride, {1, 2, 3, 6, 8, 20, 32}},
                            {"queries", &Counts::queries, {64, 192}},
                            {"keys", &Counts::keys, {64, 96, 176}},
                            {"head_dim", &Counts::head_dim, {64, 192, 256}},
                            {"bytes_a_second", &Counts::bytes_a_second, {3.35e12, 8e12}},
                            {"clocks_a_second", &Counts::clocks_a_second, {1.4e9, 2e9}},
                            {"clocks_of_a_load", &Counts::clocks_of_a_load, {500, 900}}},
                           predicted, want);
}

TEST(MachineCounts, BlocksByRegisters) { expect_formula(&Counts::blocks_by_registers, blocks_by_registers); }
TEST(MachineCounts, BlocksByShared) { expect_formula(&Counts::blocks_by_shared, blocks_by_shared); }
TEST(MachineCounts, Occupancy) {
  expect_formula(&Counts::occupancy, [](const Counts& p) {
    return std::min(blocks_by_registers(p), blocks_by_shared(p)) * p.threads / 32 / 64;
  });
}
TEST(MachineCounts, SectorsOfX) {
  expect_formula(&Counts::sectors_of_x, [](const Counts& p) {
    return units(32, 4, [&](int lane) { return 4 * int(p.floats) * lane; });
  });
}
TEST(MachineCounts, SectorsShifted) {
  expect_formula(&Counts::sectors_shifted, [](const Counts& p) {
    return units(32, 8, [&](int lane) { return int(p.offset) + 8 * lane; });
  });
}
TEST(MachineCounts, Wavefronts) {
  expect_formula(&Counts::wavefronts, [](const Counts& p) {
    std::vector<int> words(32);  // of each bank
    for (int lane = 0; lane < 32; ++lane) ++words[std::size_t(int(p.stride) * lane % 32)];
    return double(*std::max_element(words.begin(), words.end()));
  });
}
TEST(MachineCounts, BytesUnderWay) {
  expect_formula(&Counts::bytes_under_way, [](const Counts& p) {
    return p.bytes_a_second / 132 * p.clocks_of_a_load / p.clocks_a_second;
  });
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
