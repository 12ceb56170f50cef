#include "tests/exercises/timed.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "common/device/device.h"

namespace flashbook::testing {
namespace {

constexpr int kRuns = 30;
constexpr std::chrono::duration<double> kPatience{0.5};

const char* times_file() { return std::getenv("FLASHBOOK_COURSE_TIMES"); }

std::ofstream& times() {
  static std::ofstream file(times_file());
  if (!file)
    throw std::runtime_error(std::string("FLASHBOOK_COURSE_TIMES=") + times_file() + ": cannot be written");
  if (file.tellp() == 0) file << device::info().name << "\n";
  return file;
}

}  // namespace

bool is_timed() { return times_file() != nullptr; }

void timed(const std::function<void()>& work) {
  if (!is_timed()) return work();
  device::flush_l2(nullptr);
  const double seconds = device::time_on_device(nullptr, work);
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  times() << test->test_suite_name() << "." << test->name() << " " << seconds << std::endl;
}

void timed_in_runs(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  int runs = 0;
  do timed(work);
  while (is_timed() && ++runs < kRuns && std::chrono::steady_clock::now() - start < kPatience);
}

int timed_length() {
  const char* length = std::getenv("FLASHBOOK_COURSE_TIMED_LENGTH");
  return length ? std::atoi(length) : 4096;
}

}  // namespace flashbook::testing
