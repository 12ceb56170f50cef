// Tests all 2^32 floats in every format. Takes seconds to minutes: not part of the default run.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "common/attention/parallel.h"
#include "common/numeric/float_formats.h"
#include "tests/numeric/format_reference.h"

namespace flashbook {
namespace {

using testing::FormatReference;

/// Counts the floats that `encode` rounds differently from `format`. `example` is set to the bits of one.
template <typename Encode>
int64_t count_wrong(const FormatReference& format, Encode encode, std::atomic<uint32_t>& example) {
  const std::vector<uint32_t> first = format.first_floats();
  constexpr int64_t kChunks = 128, kChunk = (int64_t(1) << 31) / kChunks;
  std::atomic<int64_t> wrong = 0;
  parallel_for(kChunks, [&](int64_t chunk) {
    const uint32_t begin = uint32_t(chunk * kChunk), end = uint32_t((chunk + 1) * kChunk);
    std::size_t index = std::upper_bound(first.begin(), first.end(), begin) - first.begin() - 1;
    for (uint32_t bits = begin; bits != end; ++bits) {
      if (index + 1 < first.size() && bits == first[index + 1]) ++index;
      const bool is_nan = bits > testing::kFloatInfinity;
      const uint32_t positive = is_nan ? format.nan : format.encoding(index);
      const uint32_t negative = is_nan ? format.nan : positive | format.sign();
      if (encode(std::bit_cast<float>(bits)) == positive &&
          encode(std::bit_cast<float>(bits | testing::kFloatSign)) == negative)
        continue;
      ++wrong;
      example = bits;
    }
  });
  return wrong;
}

TEST(Exhaustive, EveryFloatToF16) {
  std::atomic<uint32_t> example = 0;
  EXPECT_EQ(count_wrong(
                testing::kF16, [](float value) { return to_f16(value).bits; }, example),
            0)
      << example;
}

TEST(Exhaustive, EveryFloatToBf16) {
  std::atomic<uint32_t> example = 0;
  EXPECT_EQ(count_wrong(
                testing::kBf16, [](float value) { return to_bf16(value).bits; }, example),
            0)
      << example;
}

TEST(Exhaustive, EveryFloatToE4m3) {
  std::atomic<uint32_t> example = 0;
  EXPECT_EQ(count_wrong(
                testing::kE4m3, [](float value) { return to_e4m3(value).bits; }, example),
            0)
      << example;
}

}  // namespace
}  // namespace flashbook
