/// \file
/// Helpers for tests of the simulator itself.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "common/device/kernel.h"
#include "common/simulator/launch.h"
#include "common/simulator/memory.h"

namespace flashbook::sim {

/// Restores the options when a test ends.
class SimulatorTest : public testing::Test {
 protected:
  ~SimulatorTest() override { options() = before_; }

 private:
  Options before_ = options();
};

/// Returns the error message of a grid; empty if there is no error.
inline std::string error_of(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                            const std::function<void()>& body) {
  try {
    run_grid(grid, block, dynamic_shared_bytes, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline std::string error_of(dim3 grid, dim3 block, const std::function<void()>& body) {
  return error_of(grid, block, 0, body);
}

/// Returns "file_test.cpp:12", the way in which reports name a line of the calling file.
inline std::string line(int number, const char* file = __builtin_FILE()) {
  return to_string(Location{file, number});
}

inline void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), text.npos) << text << "\nlacks: " << part;
}

}  // namespace flashbook::sim
