#include "common/attention/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace flashbook {
namespace {

TEST(ParallelFor, CallsEveryIndexOnce) {
  for (int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> calls(count);
    parallel_for(count, [&](int64_t i) { ++calls[i]; });
    for (const std::atomic<int>& n : calls) EXPECT_EQ(n, 1);
  }
}

TEST(ParallelFor, NeedsNoThreadForOneCall) {
  std::thread::id id;
  parallel_for(1, [&](int64_t) { id = std::this_thread::get_id(); });
  EXPECT_EQ(id, std::this_thread::get_id());
}

TEST(ParallelFor, UsesMoreThanOneCore) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "this machine has one core";
  // Two calls that wait for each other end only if two threads run them.
  std::atomic<int> arrived = 0;
  parallel_for(2, [&](int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ParallelFor, EndsWithTheFirstException) {
  const auto body = [](int64_t i) {
    if (i == 3) throw std::runtime_error("three");
  };
  try {
    parallel_for(int64_t(1) << 60, body);  // would take years to its end
    FAIL() << "the exception is lost";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "three");
  }
}

TEST(ParallelFor, Nests) {
  std::atomic<int> calls = 0;
  parallel_for(4, [&](int64_t) { parallel_for(5, [&](int64_t) { ++calls; }); });
  EXPECT_EQ(calls, 20);
}

}  // namespace
}  // namespace flashbook
