#include "chapters/08_decoding/exercises/bytes.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using namespace decoding;

constexpr double kTolerance = 0.01, kTerabytes = 4.3e12, kFlops = 790e12;

/// A token of a model whose cache has keys and values of its own for each key head.
constexpr double token(int layers, int kv_heads) { return 2.0 * layers * kv_heads * 128 * 2; }

TEST(Bytes, KeysWithoutACache) {
  double keys = 0;
  for (int length = 1; length <= 1000; ++length) keys += length;
  expect_predicted(kKeysWithoutCache, keys, kTolerance);
}
TEST(Bytes, ATokenOf8B) { expect_predicted(kTokenOf8B, token(32, 8), kTolerance); }
TEST(Bytes, ATokenOf70B) { expect_predicted(kTokenOf70B, token(80, 8), kTolerance); }
TEST(Bytes, ATokenOf70BUngrouped) { expect_predicted(kTokenOf70BUngrouped, token(80, 64), kTolerance); }
TEST(Bytes, ATokenOfLatents) { expect_predicted(kTokenOfLatent, 70272, kTolerance); }
TEST(Bytes, SequencesThatFit) {
  expect_predicted(kSequences, std::floor(125e9 / (token(32, 8) * 8192)), 0.001);
}
TEST(Bytes, Microseconds) {
  expect_predicted(kMicroseconds, 1e6 * 16 * 8192 * token(1, 8) / kTerabytes, kTolerance);
}
TEST(Bytes, Partials) { expect_predicted(kPartialBytes, 16 * 32 * (128 + 1) * sizeof(float), kTolerance); }
TEST(Bytes, IntensityOfAGroup) { expect_predicted(kIntensityOfGroup, 4, kTolerance); }
TEST(Bytes, IntensityOfALatentHead) { expect_predicted(kIntensityOfLatentHead, 1088 / 576.0, kTolerance); }
TEST(Bytes, HeadsAtTheRidge) {
  expect_predicted(kHeadsAtRidge, std::ceil(kFlops / kTerabytes / (1088 / 576.0)), 0.001);
}

}  // namespace
}  // namespace flashbook::testing
