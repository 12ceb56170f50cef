#include "common/simulator/memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <set>
#include <utility>

#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

unsigned char* allocate(std::size_t bytes) { return static_cast<unsigned char*>(allocate_global(bytes)); }

/// Returns the bytes of host memory that this process uses.
std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

TEST(GlobalMemory, IsPoisonedAndAligned) {
  for (std::size_t bytes : {1, 255, 256, 257, 100000}) {
    unsigned char* memory = allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % kGlobalAlignment, 0u);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(memory[i], 0xff) << i;
    free_global(memory);
  }
}

TEST(GlobalMemory, ReadsAsNaN) {
  auto* values = static_cast<float*>(allocate_global(4 * sizeof(float)));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(values[i]));
  free_global(values);
}

TEST(GlobalMemory, KnowsItsAllocations) {
  unsigned char* memory = allocate(1000);
  int on_the_stack = 0;
  EXPECT_TRUE(is_global(memory));
  EXPECT_FALSE(is_global(&on_the_stack));
  EXPECT_TRUE(is_allocated(memory, 1000));
  EXPECT_TRUE(is_allocated(memory + 999, 1));
  EXPECT_FALSE(is_allocated(memory, 1001));
  EXPECT_FALSE(is_allocated(memory + 1000, 1));
  EXPECT_FALSE(is_allocated(memory - 1, 1));
  EXPECT_FALSE(is_allocated(memory, 0));
  EXPECT_FALSE(is_allocated(&on_the_stack, 4));
  free_global(memory);
  EXPECT_FALSE(is_allocated(memory, 1));
}

TEST(GlobalMemory, AllocationsLieAtADistanceThatTheSeedDraws) {
  std::set<std::ptrdiff_t> distances;
  for (const uint64_t seed : {0, 0, 1, 2, 3, 4}) {
    const uint64_t before = std::exchange(options().seed, seed);
    unsigned char *a = allocate(512), *b = allocate(512);
    options().seed = before;
    if (seed == 0) {
      EXPECT_EQ(b - a, std::ptrdiff_t(4096 + kGuardBytes));
    }
    EXPECT_GE(b - a, std::ptrdiff_t(4096 + kGuardBytes));
    distances.insert(b - a);
    free_global(a);
    free_global(b);
  }
  EXPECT_GE(distances.size(), 3u);
}

TEST(GlobalMemory, FreedMemoryIsNotUsedAgainSoon) {
  unsigned char* first = allocate(4096);
  free_global(first);
  for (int i = 0; i < 1000; ++i) {
    unsigned char* next = allocate(4096);
    ASSERT_NE(first, next);
    for (int byte = 0; byte < 4096; byte += 512) ASSERT_EQ(next[byte], 0xff);
    free_global(next);
  }
}

TEST(GlobalMemoryDeathTest, NobodyTouchesWhatIsNotAllocated) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  unsigned char* memory = allocate(512);
  EXPECT_DEATH({ static_cast<volatile unsigned char*>(memory)[512] = 1; }, "");
  free_global(memory);
  EXPECT_DEATH({ static_cast<volatile unsigned char*>(memory)[0] = 1; }, "");
}

TEST(GlobalMemory, FreeingGivesTheHostItsPagesBack) {
  constexpr std::size_t kBytes = 64 << 20;
  const std::size_t before = resident_bytes();
  void* memory = allocate_global(kBytes);
  EXPECT_GE(resident_bytes(), before + kBytes * 9 / 10);
  free_global(memory);
  EXPECT_LE(resident_bytes(), before + kBytes / 10);
}

TEST(GlobalMemory, RefusesWhatDoesNotFit) {
  try {
    allocate_global(kGlobalBytes + 1);
    FAIL() << "allocated more than there is";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no room for " + std::to_string(kGlobalBytes + 1) + " bytes"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(allocate_global(~std::size_t(0)), Error);
}

TEST(GlobalMemory, RefusesToFreeWhatIsNoAllocation) {
  unsigned char* memory = allocate(100);
  int on_the_stack = 0;
  EXPECT_THROW(free_global(memory + 4), Error);
  EXPECT_THROW(free_global(&on_the_stack), Error);
  free_global(memory);
  EXPECT_THROW(free_global(memory), Error);
  free_global(nullptr);
}

}  // namespace
}  // namespace flashbook::sim
