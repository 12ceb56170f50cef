/// \file
/// Tests that run on the build's machine: those of a GPU build need a GPU.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "common/device/device.h"

namespace flashbook {

/// A fixture whose tests are skipped where the hardware is missing. FLASHBOOK_REQUIRE_GPU=1 makes them fail
/// instead, for machines that must run them. In the simulator build they always run.
class MachineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      device::info();
    } catch (const device::HardwareMissing& missing) {
      const char* required = std::getenv("FLASHBOOK_REQUIRE_GPU");
      if (required && std::string_view(required) == "1") FAIL() << missing.what();
      GTEST_SKIP() << missing.what();
    }
  }
};

/// A fixture for tests of features that only Hopper has.
class HopperTest : public MachineTest {
 protected:
  void SetUp() override {
    MachineTest::SetUp();
    if (!IsSkipped() && device::info().compute_capability != 90) GTEST_SKIP() << "this GPU is not a Hopper";
  }
};

}  // namespace flashbook
