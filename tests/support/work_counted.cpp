// The traced mode counts accesses. Products and exponentials are counted here: the linker redirects calls of
// the functions below to this file (--wrap in tests/exercises/CMakeLists.txt).
#include <algorithm>
#include <atomic>
#include <cmath>

#include "common/simulator/mma.h"
#include "common/simulator/trace/trace.h"
#include "common/simulator/wgmma.h"
#include "common/simulator/wmma.h"
#include "tests/support/work.h"

namespace flashbook::testing {
namespace {

constexpr double kWavefrontBytes = 128, kSectorBytes = sim::kSectorBytes;

/// The totals of one thread's calls, which include its share of each product.
struct Calls {
  std::atomic<uint64_t> exponentials, mma, wgmma, operand_bytes;
};
Calls calls;

void add(std::atomic<uint64_t>& count, uint64_t more) { count.fetch_add(more, std::memory_order_relaxed); }

bool is_tma(const sim::LineCounts& line) {
  return line.instruction.find("tma") != std::string::npos ||
         line.instruction.find("bulk") != std::string::npos;
}

}  // namespace

std::optional<Work> work_of(const std::vector<std::function<void()>>& launches, double multiply_adds,
                            int multiprocessors) {
  Work work;
  double with_idle = 0;
  sim::take_trace();  // discard earlier launches
  for (const auto& launch : launches) {
    calls.exponentials = calls.mma = calls.wgmma = calls.operand_bytes = 0;
    launch();
    Work one;
    double idle = 0;  // clocks of idle multiprocessors
    for (const sim::LaunchTrace& trace : sim::take_trace()) {
      // Blocks without work occupy no multiprocessor.
      const double blocks = std::max(1.0, double(trace.busy_blocks));
      const double before = one.clocks();
      for (const sim::LineCounts& line : trace.lines) {
        (line.shared ? one.wavefronts : one.sectors) += double(line.counts.units);
        if (!line.shared && is_tma(line))  // its other end is a row of the same width in shared memory
          one.wavefronts += double(line.counts.units) * kSectorBytes / kWavefrontBytes;
      }
      // The busiest multiprocessor's number of blocks, relative to the average.
      const double most = std::ceil(blocks / multiprocessors) * multiprocessors / blocks;
      idle += (one.clocks() - before) * (most - 1);
    }
    const double share = one.clocks() > 0 ? idle / one.clocks() : 0;
    one.wavefronts += double(calls.operand_bytes) / kWavefrontBytes;
    one.exponentials = double(calls.exponentials) / 16;
    one.tensor_cores = double(calls.wgmma) / 2048 + double(calls.mma) / 1296;
    one.multiply_adds = double(calls.wgmma) + double(calls.mma);
    work.sectors += one.sectors;
    work.wavefronts += one.wavefronts;
    work.exponentials += one.exponentials;
    work.tensor_cores += one.tensor_cores;
    work.multiply_adds += one.multiply_adds;
    with_idle += one.clocks() * share;
  }
  work.cuda_cores = std::max(0.0, multiply_adds - work.multiply_adds) / 128;
  const double counted = work.clocks() - work.cuda_cores;
  work.idle = counted > 0 ? with_idle * (1 + work.cuda_cores / counted) : 0;
  return work;
}

}  // namespace flashbook::testing

namespace testing = flashbook::testing;
namespace sim = flashbook::sim;

#define FLASHBOOK_COUNTED(type, name)             \
  extern "C" type __real_##name(type) noexcept;   \
  extern "C" type __wrap_##name(type) noexcept;   \
  type __wrap_##name(type x) noexcept {           \
    testing::add(testing::calls.exponentials, 1); \
    return __real_##name(x);                      \
  }
FLASHBOOK_COUNTED(float, expf)
FLASHBOOK_COUNTED(float, exp2f)
FLASHBOOK_COUNTED(float, tanhf)
FLASHBOOK_COUNTED(double, exp)
FLASHBOOK_COUNTED(double, exp2)
FLASHBOOK_COUNTED(double, tanh)
FLASHBOOK_COUNTED(float, expm1f)
FLASHBOOK_COUNTED(double, expm1)
FLASHBOOK_COUNTED(float, exp10f)
FLASHBOOK_COUNTED(double, exp10)
FLASHBOOK_COUNTED(float, sinhf)
FLASHBOOK_COUNTED(double, sinh)
FLASHBOOK_COUNTED(float, coshf)
FLASHBOOK_COUNTED(double, cosh)
FLASHBOOK_COUNTED(long double, expl)
FLASHBOOK_COUNTED(long double, exp2l)
FLASHBOOK_COUNTED(long double, expm1l)
#undef FLASHBOOK_COUNTED

// A power takes an exponential, too.
#define FLASHBOOK_COUNTED(type, name)                  \
  extern "C" type __real_##name(type, type) noexcept;  \
  extern "C" type __wrap_##name(type, type) noexcept;  \
  type __wrap_##name(type base, type power) noexcept { \
    testing::add(testing::calls.exponentials, 1);      \
    return __real_##name(base, power);                 \
  }
FLASHBOOK_COUNTED(float, powf)
FLASHBOOK_COUNTED(double, pow)
FLASHBOOK_COUNTED(long double, powl)
#undef FLASHBOOK_COUNTED

// The simulator's own functions are wrapped by their mangled names.
#define FLASHBOOK_MMA "_ZN9flashbook3sim12mma_m16n8k16ENS_5DTypeEPfPKjS4_PKfNS0_8LocationE"
#define FLASHBOOK_WMMA "_ZN9flashbook3sim18multiply_fragmentsENS_5DTypeEPfPKvS4_PKfNS0_8LocationE"
#define FLASHBOOK_WGMMA "_ZN9flashbook3sim5wgmmaERKNS0_9WgmmaKindEPfPKjmmbNS0_8LocationE"

void real_mma(flashbook::DType, float*, const uint32_t*, const uint32_t*, const float*,
              sim::Location) __asm__("__real_" FLASHBOOK_MMA);
void counted_mma(flashbook::DType, float*, const uint32_t*, const uint32_t*, const float*,
                 sim::Location) __asm__("__wrap_" FLASHBOOK_MMA);
void counted_mma(flashbook::DType type, float* d, const uint32_t* a, const uint32_t* b, const float* c,
                 sim::Location where) {
  testing::add(testing::calls.mma, 16 * 8 * 16 / 32);
  real_mma(type, d, a, b, c, where);
}

void real_wmma(flashbook::DType, float*, const void*, const void*, const float*,
               sim::Location) __asm__("__real_" FLASHBOOK_WMMA);
void counted_wmma(flashbook::DType, float*, const void*, const void*, const float*,
                  sim::Location) __asm__("__wrap_" FLASHBOOK_WMMA);
void counted_wmma(flashbook::DType type, float* d, const void* a, const void* b, const float* c,
                  sim::Location where) {
  testing::add(testing::calls.mma, 16 * 16 * 16 / 32);
  real_wmma(type, d, a, b, c, where);
}

void real_wgmma(const sim::WgmmaKind&, float*, const uint32_t*, uint64_t, uint64_t, bool,
                sim::Location) __asm__("__real_" FLASHBOOK_WGMMA);
void counted_wgmma(const sim::WgmmaKind&, float*, const uint32_t*, uint64_t, uint64_t, bool,
                   sim::Location) __asm__("__wrap_" FLASHBOOK_WGMMA);
void counted_wgmma(const sim::WgmmaKind& kind, float* d, const uint32_t* a_registers, uint64_t a, uint64_t b,
                   bool accumulate, sim::Location where) {
  // Every thread of the warpgroup calls this: count its share of 64 x n x 32 bytes and of the operands in
  // shared memory.
  const int k = 32 / flashbook::size_of(kind.type), threads = 128;
  testing::add(testing::calls.wgmma, uint64_t(64 * kind.n * k / threads));
  testing::add(testing::calls.operand_bytes,
               uint64_t((kind.a_in_registers ? 0 : 64 * 32) + kind.n * 32) / threads);
  real_wgmma(kind, d, a_registers, a, b, accumulate, where);
}
