#include "chapters/04_flash_attention_2/step5_tuned.cuh"

#define DIGESTS(...) static_assert(true)  // the tests below take their place
#include "tests/exercises/ch04-budget.cu"

namespace flashbook::testing {
namespace {

constexpr double row_bytes(const Problem& p) { return 2 * p.head_dim; }
constexpr double shared_bytes(const Problem& p) {
  return (p.warps * p.queries + 2 * p.stages * p.keys) * row_bytes(p);
}
double blocks(const Problem& p) { return std::floor(228 * 1024 / (shared_bytes(p) + 1024)); }
constexpr double registers(const Problem& p, double columns) { return p.queries * columns / 32; }
constexpr double products(const Problem& p) {
  return 2 * (p.queries / 16) * (p.keys / 8) * (p.head_dim / 16);
}

// The chapter's kernel, for the sizes of the text.
using OurTraits = fa2::KernelTraits<fa2::TunedSizes{.head_dim = 192, .blocks_per_sm = 1}>;
static_assert(shared_bytes({}) == OurTraits::kSharedBytes);
static_assert(registers({}, 192) ==
              sizeof(fa2::Blocks<OurTraits::kRowBlocks, OurTraits::kHeadDim / 8>) / sizeof(float));
static_assert(registers({}, 64) ==
              sizeof(fa2::Blocks<OurTraits::kRowBlocks, OurTraits::kKeys / 8>) / sizeof(float));

PREDICTION(Budget, SharedMemory, shared_bytes) { return shared_bytes(p); }
PREDICTION(Budget, BlocksThatFit, blocks) { return blocks(p); }
PREDICTION(Budget, RegistersOfO, registers_o) { return registers(p, p.head_dim); }
PREDICTION(Budget, RegistersOfScores, registers_scores) { return registers(p, p.keys); }
PREDICTION(Budget, RegistersAtMost, registers_at_most) {
  return std::min(255.0, std::floor(65536 / (blocks(p) * p.warps * 32) / 8) * 8);
}
PREDICTION(Budget, Products, products) { return products(p); }
PREDICTION(Budget, BytesThatAWarpReads, read_bytes) { return (p.queries + 2 * p.keys) * row_bytes(p); }
PREDICTION(Budget, BytesThatABlockReadsWithHalfTheRowsAWarp, block_reads_of_half) {
  return p.warps * (p.queries + 4 * p.keys) * row_bytes(p);
}

}  // namespace
}  // namespace flashbook::testing
