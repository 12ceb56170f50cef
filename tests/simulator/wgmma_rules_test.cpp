/// \file
/// Errors in the use of wgmma and the simulator's reports.
#include <cmath>
#include <string>

#include "common/ptx/wgmma.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

constexpr unsigned kThreads = 128;
constexpr std::size_t kSharedBytes = 16 * 1024;

/// A thread's operands in these tests: tiles of ones, one step along k each, and an accumulator.
struct Operands {
  uint64_t a, b;
  float d[8] = {};

  Operands() {
    auto* shared = dynamic_shared<unsigned char>();
    const int thread = threadIdx.x;
    for (int i = thread % 128; i < int(kSharedBytes / 2); i += 128) dynamic_shared<__half>()[i] = to_f16(1);
    __syncthreads();
    a = wgmma_descriptor<Swizzle::none>(shared, 1024, 128);
    b = wgmma_descriptor<Swizzle::none>(shared + 8192, 1024, 128);
  }
};

void finish() {
  wgmma_commit();
  wgmma_wait<0>();
}

constexpr int kProductLine = __LINE__ + 1;
void multiply(Operands& x, bool accumulate = false) { wgmma<__half, 16>(x.d, x.a, x.b, accumulate); }

class WgmmaRules : public sim::SimulatorTest {
 protected:
  WgmmaRules() { sim::options().async = sim::Async::lazy; }

  /// Returns the error of a block of `threads` threads that run `body`.
  template <typename Body>
  std::string error_of(const Body& body, unsigned threads = kThreads) {
    return sim::error_of(1, threads, kSharedBytes, [&] {
      Operands x;
      body(x, int(threadIdx.x));
    });
  }
};

using sim::expect_in;

// Too early.

TEST_F(WgmmaRules, AnAccumulatorIsNaNUntilItIsWaitedFor) {
  const Values<float> out(2);
  const auto read = [&](Operands& x, int thread) {
    wgmma_fence();
    multiply(x);
    const float early = x.d[3];
    finish();
    if (thread == 17) out.data()[0] = early, out.data()[1] = x.d[3];
  };
  EXPECT_EQ(error_of(read), "");
  EXPECT_TRUE(std::isnan(out.get()[0]));
  EXPECT_EQ(out.get()[1], 16.0f);
  sim::options().async = sim::Async::eager;
  EXPECT_EQ(error_of(read), "");
  EXPECT_EQ(out.get()[0], 16.0f);
}

TEST_F(WgmmaRules, RandomProductsAreDoneBeforeTheWaitOrInItBySeed) {
  sim::options().async = sim::Async::random;
  int early = 0;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    sim::options().seed = seed;
    const Values<float> out(2);
    EXPECT_EQ(error_of([&](Operands& x, int thread) {
                wgmma_fence();
                multiply(x);
                multiply(x, true);
                if (thread == 17) out.data()[0] = x.d[3];
                finish();
                if (thread == 17) out.data()[1] = x.d[3];
              }),
              "");
    early += !std::isnan(out.get()[0]);
    EXPECT_EQ(out.get()[1], 32.0f);
  }
  EXPECT_GT(early, 5);
  EXPECT_LT(early, 60);
}

TEST_F(WgmmaRules, AnAccumulatorMadeOfOneInFlightIsReported) {
  expect_in(error_of([](Operands& x, int) {
              float scaled[8];
              wgmma_fence();
              multiply(x);
              for (int i = 0; i < 8; ++i) scaled[i] = x.d[i] * 2;
              finish();
              wgmma_fence();
              wgmma<__half, 16>(scaled, x.a, x.b, true);
              finish();
            }),
            ": its accumulator was computed from registers that were in flight");
}

// Fences.

TEST_F(WgmmaRules, AFenceBeforeTheTouchIsNone) {
  expect_in(error_of([](Operands& x, int) {
              wgmma_fence();
              multiply(x);
              finish();
              wgmma_fence();
              x.d[0] += 1;
              multiply(x, true);
              finish();
            }),
            "the accumulator has been written since the last fence");
}

TEST_F(WgmmaRules, AnotherShapeOnAnAccumulatorInFlightIsReported) {
  expect_in(error_of([](Operands& x, int) {
              float d[16];
              wgmma_fence();
              wgmma<__half, 32>(d, x.a, x.b, false);
              wgmma<__half, 16>(reinterpret_cast<float(&)[8]>(d), x.a, x.b, true);
              finish();
            }),
            ": its accumulator overlaps one in flight that has another shape");
}

// Groups.

TEST_F(WgmmaRules, ProductsThatNobodyWaitsForAreReported) {
  for (sim::Async async : {sim::Async::lazy, sim::Async::eager}) {
    sim::options().async = async;
    for (bool commit : {false, true})
      expect_in(error_of([&](Operands& x, int) {
                  wgmma_fence();
                  multiply(x);
                  if (commit) wgmma_commit();
                }),
                "a thread exits, but the wgmma at " + sim::line(kProductLine) +
                    " has not been waited for: call wgmma_commit and wgmma_wait<0> before the end");
  }
}

// Warpgroups.

/// Returns the error of a block whose threads run `body` in order.
template <typename Body>
std::string error_in_order(const Body& body, unsigned threads = kThreads) {
  return sim::error_of(1, threads, [&] { body(int(threadIdx.x)); });
}

TEST_F(WgmmaRules, NeedsFourWholeWarps) {
  const auto fence = [](int) { wgmma_fence(); };
  expect_in(error_in_order(fence, 96),
            " needs a warpgroup, which is four whole warps starting at a multiple of four: the block has 96 "
            "threads");
  expect_in(error_in_order(fence, 160), "the block has 160 threads\n  in block (0,0,0), thread (128,0,0)");
  EXPECT_EQ(error_in_order(fence, 384), "");
  expect_in(error_in_order([](int thread) {
              if (thread >= 32) wgmma_fence();
            }),
            " needs the whole warpgroup: warp 0, lanes 0-31 exited earlier");
  expect_in(error_in_order([](int thread) {
              if (thread < 64) wgmma_fence();
            }),
            " needs the whole warpgroup: warp 0, lanes 0-31; warp 1, lanes 0-31 wait for this thread");
}

TEST_F(WgmmaRules, ThreadsThatDisagreeAreReported) {
  expect_in(
      error_of([](Operands& x, int thread) {
        wgmma_fence();
        multiply(x, thread == 3);
      }),
      ": thread 3 of the warpgroup passes a different product, descriptor or `accumulate` than thread 0");
}

TEST_F(WgmmaRules, OutsideAKernelIsReported) { EXPECT_THROW(wgmma_fence(), sim::Error); }

// Descriptors.

template <Swizzle kSwizzle, Major kMajorB = Major::k>
std::string error_of_tile(uint32_t at, uint32_t leading_bytes, uint32_t stride_bytes,
                          uint64_t other_bits = 0) {
  return sim::error_of(1, kThreads, kSharedBytes, [=] {
    Operands x;
    const uint64_t b =
        wgmma_descriptor<kSwizzle>(dynamic_shared<unsigned char>() + at, leading_bytes, stride_bytes);
    float d[64];
    wgmma_fence();
    wgmma<__half, 128, Major::k, kMajorB>(d, x.a, b | other_bits, false);
    finish();
  });
}

TEST_F(WgmmaRules, TilesThatAreMisalignedAreReported) {
  EXPECT_EQ(error_of_tile<Swizzle::none>(8192, 128, 16), "");
  expect_in(error_of_tile<Swizzle::none>(8200, 128, 256),
            ": misaligned address, dynamic shared memory + 8200 of 16384 bytes is not a multiple of 16");
  expect_in(error_of_tile<Swizzle::none>(0, 100, 128),
            " gets leading_bytes 100 and stride_bytes 128: give multiples of 16 below 262144");
  expect_in(error_of_tile<Swizzle::b128>(384, 0, 1024),
            "the descriptor of B begins in line 3 of an atom of the 128-byte swizzle: align the tile to 1024 "
            "bytes");
  expect_in(error_of_tile<Swizzle::b64>(192, 0, 512), "align the tile to 512 bytes");
  expect_in(error_of_tile<Swizzle::b32>(32, 0, 256), "align the tile to 256 bytes");
  expect_in(error_of_tile<Swizzle::b64>(48, 0, 512),
            "begins 48 bytes into a line of the 64-byte swizzle and needs 32 bytes, which goes past its end");
  EXPECT_EQ(error_of_tile<Swizzle::b128>(96, 0, 1024), "");  // the fourth step along k
  expect_in(error_of_tile<Swizzle::b128>(0, 0, 1040),
            "has leading_bytes 0 and stride_bytes 1040: atoms of the 128-byte swizzle are multiples of 1024");
}

TEST_F(WgmmaRules, TilesThatStepOutOfSharedMemoryAreReported) {
  expect_in(error_of_tile<Swizzle::b128>(1024, 0, 1024),
            "the descriptor of B leaves shared memory at row 120: 16384 of 16384 bytes; it begins at "
            "1024 with leading_bytes 0, stride_bytes 1024");
  expect_in((error_of_tile<Swizzle::b128, Major::mn>(0, 15 * 1024, 1024)),
            "the descriptor of B leaves shared memory at row 64, k 8: ");
  expect_in(sim::error_of(1, kThreads, 0,
                          [] {
                            __shared__ __align__(1024) __half tile[512];
                            wgmma_descriptor<Swizzle::none>(tile, 0, 128);
                          }),
            "is not in dynamic shared memory, where the simulator requires tiles for wgmma");
}

TEST_F(WgmmaRules, BitsThatNoDescriptorHasAreReported) {
  expect_in(error_of_tile<Swizzle::none>(0, 128, 256, uint64_t(1) << 50), "has a base offset");
  expect_in(error_of_tile<Swizzle::none>(0, 128, 256, uint64_t(1) << 46), "has reserved bits set");
}

}  // namespace
}  // namespace flashbook
