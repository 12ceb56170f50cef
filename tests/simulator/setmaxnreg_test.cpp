/// \file
/// The register budget of a block.
#include "common/ptx/setmaxnreg.h"

#include <string>

#include "common/device/launch.h"
#include "common/simulator/registers.h"
#include "tests/simulator/simulated.h"

namespace flashbook {
namespace {

class Setmaxnreg : public sim::SimulatorTest {
 protected:
  static void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
};

TEST_F(Setmaxnreg, RegistersAtStartAreThoseOfAFullMultiprocessor) {
  EXPECT_EQ(sim::registers_at_start(128), 256);
  EXPECT_EQ(sim::registers_at_start(256), 256);
  EXPECT_EQ(sim::registers_at_start(384), 168);
  EXPECT_EQ(sim::registers_at_start(512), 128);
  EXPECT_EQ(sim::registers_at_start(1024), 64);
}

template <int kBlocks>
__global__ void __launch_bounds__(384, kBlocks) share_registers() {
  if (threadIdx.x < 128)
    setmaxnreg_dec<24>();
  else
    setmaxnreg_inc<240>();
}

TEST_F(Setmaxnreg, TwoBlocksOfAMultiprocessorShareItsRegisters) {
  const auto error_of = [](void (*kernel)()) -> std::string {
    try {
      device::launch(kernel, 1, 384, 0, nullptr);
    } catch (const device::DeviceError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(sim::registers_at_start(384, 2), 80);
  EXPECT_EQ(error_of(share_registers<1>), "");
#ifndef __clang__  // clang's kernels do not tell the simulator their bounds
  expect_contains(error_of(share_registers<2>), "(assuming that all threads started with 80)");
#endif
}

TEST_F(Setmaxnreg, WhatProducersGiveConsumersGet) {
  for (uint64_t seed : {0, 1, 2, 3}) {
    sim::options().seed = seed;
    EXPECT_EQ(sim::error_of(2, 384,
                            [] {
                              if (threadIdx.x < 128)
                                setmaxnreg_dec<24>();
                              else
                                setmaxnreg_inc<240>();
                              __syncthreads();
                            }),
              "");
    // The consumers arrive first and wait.
    EXPECT_EQ(sim::error_of(1, 512,
                            [] {
                              if (threadIdx.x >= 384)
                                setmaxnreg_dec<32>();
                              else
                                setmaxnreg_inc<160>();
                            }),
              "");
  }
}

TEST_F(Setmaxnreg, WrongDirection) {
  expect_contains(sim::error_of(1, 384, [] { setmaxnreg_dec<200>(); }),
                  "requests 200 registers, but the warp has only 168: use setmaxnreg_inc to get more");
  expect_contains(sim::error_of(1, 384, [] { setmaxnreg_inc<96>(); }),
                  "requests 96 registers, but the warp already has 168: use setmaxnreg_dec to get fewer");
}

TEST_F(Setmaxnreg, EveryLaneOfTheWarpExecutesIt) {
  expect_contains(sim::error_of(1, 128,
                                [] {
                                  if (threadIdx.x % 32 > 0) return;
                                  setmaxnreg_dec<24>();
                                }),
                  "needs the whole warp");
}

}  // namespace
}  // namespace flashbook
