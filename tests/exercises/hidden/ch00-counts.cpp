#include <set>

#define DIGESTS(...) static_assert(true)  // the tests below take their place
#include "tests/exercises/ch00-counts.cpp"

namespace flashbook::testing {
namespace {

/// Returns the number of distinct units of `size` bytes that hold the `bytes` at the lanes' addresses.
template <typename Address>
double units(int size, int bytes, Address address) {
  std::set<int> touched;
  for (int lane = 0; lane < 32; ++lane)
    for (int byte = 0; byte < bytes; ++byte) touched.insert((address(lane) + byte) / size);
  return double(touched.size());
}

/// Returns the number of blocks that fit into `there` if each takes `each`.
int fitting(double there, double each) {
  int blocks = 0;
  while ((blocks + 1) * each <= there) ++blocks;
  return blocks;
}
int by_registers(const Problem& p) { return fitting(65536, p.registers * p.threads); }
int by_shared(const Problem& p) { return fitting(227, p.shared_kb); }

PREDICTION(MachineCounts, BlocksByRegisters, blocks_by_registers) { return double(by_registers(p)); }
PREDICTION(MachineCounts, BlocksByShared, blocks_by_shared) { return double(by_shared(p)); }
PREDICTION(MachineCounts, Occupancy, occupancy) {
  return std::min({by_registers(p), by_shared(p), fitting(64 * 32, p.threads)}) * p.threads / (64 * 32);
}
PREDICTION(MachineCounts, Sectors, sectors) {
  return units(32, 4, [&](int lane) { return 4 * int(p.stride) * lane; });
}
PREDICTION(MachineCounts, SectorsOfPairs, sectors_of_pairs) {
  return units(32, 8, [&](int lane) { return int(p.offset) + 8 * lane; });
}
PREDICTION(MachineCounts, Wavefronts, wavefronts) {
  return 32 /
         units(1, 1, [&](int lane) { return int(p.word_stride) * lane % 32; });  // all banks have as many
}
PREDICTION(MachineCounts, BytesUnderWay, bytes_under_way) { return p.latency / 1.8e9 * (p.bandwidth / 132); }
PREDICTION(MachineCounts, ProductClocks, product_clocks) {
  return 4 * p.queries * p.keys * p.head_dim / 4096;
}
PREDICTION(MachineCounts, ExponentialClocks, exponential_clocks) { return p.queries * p.keys / 16; }

}  // namespace
}  // namespace flashbook::testing
