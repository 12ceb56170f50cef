#include "chapters/05_flash_attention_3/specialised.cuh"

#define DIGESTS(...) static_assert(true)  // the tests below take their place
#include "tests/exercises/ch05-budget.cu"

namespace flashbook::testing {
namespace {

constexpr double rows(const Problem& p) { return p.consumers * 64; }
constexpr double stage_bytes(const Problem& p) { return p.keys * 2 * p.head_dim; }
constexpr double shared_bytes(const Problem& p) {
  return rows(p) * 2 * p.head_dim + p.stages * stage_bytes(p);
}
constexpr double in_eights(double count) { return double(int(count) / 8 * 8); }
constexpr double registers_at_start(const Problem& p) { return in_eights(65536 / (128 * (p.consumers + 1))); }
constexpr double registers_of_consumer(const Problem& p) {
  return in_eights(((p.consumers + 1) * registers_at_start(p) - p.producer_registers) / p.consumers);
}

// The chapter's kernel, for the sizes of the text.
using Traits = fa3::SpecialisedTraits<fa3::SpecialisedSizes{.head_dim = 192, .keys = 96}>;
using OurShared = fa3::SpecialisedShared<__nv_bfloat16, Traits>;
static_assert(stage_bytes({}) == sizeof(OurShared::pipeline.tile[0]));
static_assert(shared_bytes({}) == sizeof(OurShared::q) + sizeof(OurShared::pipeline.tile));
static_assert(registers_at_start({}) == 65536 / Traits::kThreads / 8 * 8);
static_assert(registers_of_consumer({}) == fa3::kConsumerRegisters<2>);
static_assert(sizeof(fa3::Fragments<96>) / sizeof(uint32_t) == 96 / 4);

PREDICTION(Budget, MostKeys, most_keys) {
  Problem larger = p;
  larger.keys = 16;
  while (shared_bytes(larger) <= 227 * 1024) larger.keys += 16;
  return larger.keys - 16;
}
PREDICTION(Budget, BytesOfAStage, stage_bytes) { return stage_bytes(p); }
PREDICTION(Budget, SharedMemory, shared_bytes) { return shared_bytes(p); }
PREDICTION(Budget, ArrivalsAtEmpty, empty_arrivals) { return p.consumers * fa3::kWarpsPerWarpgroup; }
PREDICTION(Budget, FillingsOfStage0, fillings) {  // K and V alternate
  double stage = 0, count = 0;
  for (double key = 0; key < p.seqlen_k; key += p.keys)
    for (int kind = 0; kind < 2; ++kind) {
      count += stage == 0;
      stage = stage + 1 == p.stages ? 0 : stage + 1;
    }
  return count;
}
PREDICTION(Budget, RegistersAtTheStart, registers_at_start) { return registers_at_start(p); }
PREDICTION(Budget, RegistersOfAConsumer, registers_of_consumer) { return registers_of_consumer(p); }
PREDICTION(Budget, RegistersOfO, registers_o) { return p.head_dim / 2; }
PREDICTION(Budget, RegistersOfScores, registers_scores) { return p.keys / 2; }
PREDICTION(Budget, RegistersOfP, registers_p) { return p.keys / 4; }
PREDICTION(Budget, Products, products) { return (p.head_dim + p.keys) / fa3::kMmaK; }
PREDICTION(Budget, CyclesOfProducts, product_cycles) { return 4 * rows(p) * p.keys * p.head_dim / 4096; }
PREDICTION(Budget, CyclesOfExponentials, exponential_cycles) { return rows(p) * p.keys / 16; }

}  // namespace
}  // namespace flashbook::testing
