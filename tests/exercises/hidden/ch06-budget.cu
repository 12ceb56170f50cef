#include "chapters/06_fp8/step1_attention.cuh"

#define DIGESTS(...) static_assert(true)  // the tests below take their place
#include "tests/exercises/ch06-budget.cu"

namespace flashbook::testing {
namespace {

constexpr double scores(const Problem& p) { return p.consumers * 64 * p.keys; }  // scores of all consumers
constexpr double stage_bytes(const Problem& p) { return p.keys * p.head_dim; }
constexpr double shared_bytes(const Problem& p, double stages) {
  return p.consumers * 64 * p.head_dim + stages * stage_bytes(p);
}
constexpr double most_stages(const Problem& p) {
  double stages = 0;
  while (shared_bytes(p, stages + 1) <= 227 * 1024) ++stages;
  return stages;
}

// The chapter's kernel, for the sizes of the text.
struct Traits : fp8::KernelTraits<fp8::Fp8Sizes{.head_dim = 192}> {
  static constexpr int kKeyStages = 3, kRawStages = 2, kTransposedStages = 3;
  static constexpr bool kStoreByTma = false;
};
using OurShared = fp8::Shared<Traits>;
static_assert(stage_bytes({}) == sizeof(OurShared::keys.tile[0]));
static_assert(most_stages({}) == Traits::kKeyStages + Traits::kRawStages + Traits::kTransposedStages);
static_assert(sizeof(OurShared) <= 227 * 1024 && sizeof(OurShared) + stage_bytes({}) > 227 * 1024);
static_assert(sizeof(fp8::Fragments<Traits::kKeys>) / sizeof(uint32_t) == 128 / 8);
static_assert(sizeof(fp8::Fragments<Traits::kHeadDim>) / sizeof(uint32_t) == 192 / 8);
static_assert(fp8::kTransposers == Problem{}.transposers);

PREDICTION(Budget, BytesOfAStage, stage_bytes) { return stage_bytes(p); }
PREDICTION(Budget, MostStages, most_stages) { return most_stages(p); }
PREDICTION(Budget, SharedMemory, shared_bytes) { return shared_bytes(p, most_stages(p)); }
PREDICTION(Budget, ArrivalsAtFull, transposed_full_arrivals) { return p.transposers; }
PREDICTION(Budget, ArrivalsAtEmpty, transposed_empty_arrivals) { return p.consumers * 4; }
PREDICTION(Budget, LoadsOfATransposer, loads_of_transposer) {
  return stage_bytes(p) / (32 * 16) / p.transposers;
}
PREDICTION(Budget, RegistersOfO, registers_o) { return p.head_dim / 2; }
PREDICTION(Budget, RegistersOfScores, registers_scores) { return p.keys / 2; }
PREDICTION(Budget, RegistersOfP, registers_p) { return p.keys / 8; }
PREDICTION(Budget, RegistersOfQ, registers_q) { return p.head_dim / 8; }
PREDICTION(Budget, Products, products) { return (p.head_dim + p.keys) / fp8::kMmaK; }
PREDICTION(Budget, CyclesOfProducts, product_cycles) { return 4 * scores(p) * p.head_dim / 8192; }
PREDICTION(Budget, CyclesOfExponentials, exponential_cycles) { return scores(p) / 16; }
PREDICTION(Budget, CyclesOfSharedMemory, shared_memory_cycles) {
  return (2 + 2 + 2 * p.consumers) * stage_bytes(p) / 128;
}
PREDICTION(Budget, Offset, offset) { return std::floor(std::log2(448.0)) - p.rise; }
PREDICTION(Budget, LeastExponent, least_exponent) { return p.rise - 14; }

}  // namespace
}  // namespace flashbook::testing
