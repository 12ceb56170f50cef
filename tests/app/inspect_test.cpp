// --inspect locates a kernel's fault from its outputs alone.
#include "common/app/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/attention/error.h"
#include "common/attention/inputs.h"
#include "tests/support/specs.h"

namespace flashbook::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A step's fault.
enum Fault { none, loses_a_tile, sees_the_future, no_number_from_key_130, no_number_in_one_value };

/// Computes attention row by row, in float, on the host, as a chapter with one step per fault.
template <Fault kFault>
void by_the_book(const Spec& spec, const Tensors& t, device::Stream) {
  const auto *q = static_cast<const float*>(t.q), *k = static_cast<const float*>(t.k),
             *v = static_cast<const float*>(t.v);
  const int d = spec.head_dim;
  for (int row = 0; row < spec.q_rows(); ++row) {
    const int query = row % spec.seqlen_q;
    const int64_t first_key = int64_t(row / spec.seqlen_q) * spec.seqlen_k;
    std::vector<float> scores(spec.seqlen_k, -INFINITY);
    const int visible = kFault == sees_the_future ? spec.seqlen_k : spec.visible_keys(query);
    for (int key = 0; key < visible; ++key) {
      if (kFault == loses_a_tile && key / 64 == 1) continue;
      scores[key] = 0;
      for (int c = 0; c < d; ++c) scores[key] += spec.scale * q[row * d + c] * k[(first_key + key) * d + c];
      if (kFault == no_number_from_key_130 && key >= 130)
        scores[key] *= k[(first_key + key) * d] == 0 ? 1 : kNan;
    }
    float maximum = -INFINITY, sum = 0;
    for (const float score : scores) maximum = std::isnan(score) ? score : std::max(maximum, score);
    for (const float score : scores) sum += std::exp(score - maximum);
    t.lse[row] = maximum + std::log(sum);
    auto* o = static_cast<float*>(t.o) + int64_t(row) * d;
    for (int c = 0; c < d; ++c) o[c] = 0;
    for (int key = 0; key < spec.seqlen_k; ++key)
      for (int c = 0; c < d; ++c) o[c] += std::exp(scores[key] - t.lse[row]) * v[(first_key + key) * d + c];
    if (kFault == no_number_in_one_value) o[70 % d] += v[(first_key + 70) * d + 70 % 64] > 0.5f ? kNan : 0;
  }
}

template <Fault kFault>
constexpr Step row(const char* name) {
  return {.slug = name,
          .name = name,
          .idea = "",
          .operation = Operation::forward,
          .accepts = Features::every(),
          .run = by_the_book<kFault>};
}

constexpr Step kSteps[] = {row<none>("right"), row<loses_a_tile>("lost"), row<sees_the_future>("future"),
                           row<no_number_from_key_130>("nan"), row<no_number_in_one_value>("value")};
constexpr DType kType = DType::f32;

Chapter book() {
  return {.number = 90,
          .name = "90_rows",
          .title = "Rows",
          .runs_on = device::Place::host,
          .steps = kSteps,
          .dtypes = std::span(&kType, 1),
          .gpu_spec = {},
          .cpu_spec = {}};
}

constexpr RowOf kRow = {0, 1, 10};  // sees keys 0 to kLastKey
constexpr int kLastKey = 190;

const Spec& spec_of_row() {
  static const Spec spec = make_spec(20, 200, 64, true, DType::f32, 2, 2);
  return spec;
}

const Inputs& inputs_of_row() {
  static const Inputs inputs = make_inputs(spec_of_row(), InputKind::drifting, 1);
  return inputs;
}

Inspection inspected(Fault fault) { return inspect(book(), spec_of_row(), inputs_of_row(), kRow, fault + 1); }

TEST(Inspect, ShowsARow) {
  const Inspection found = inspected(none);
  EXPECT_TRUE(found.ok());
  const InspectedRow& row = found.step;
  ASSERT_EQ(row.p.size(), 200u);
  ASSERT_EQ(row.maximum.size(), 4u);
  double sum = 0;
  for (int key = 0; key < 200; ++key) {
    sum += row.p[key];
    if (key > kLastKey) {
      EXPECT_EQ(row.p[key], 0);
    } else {
      EXPECT_NEAR(row.scores[key], found.oracle.scores[key], 1e-3);
    }
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  // After the last tile, the maximum, the sum and O are those of the whole row.
  EXPECT_EQ(row.maximum[3], *std::ranges::max_element(row.scores));
  EXPECT_NEAR(row.maximum[3] + std::log(row.sum[3]), row.lse, 1e-5);
  for (int c = 0; c < 64; ++c) EXPECT_NEAR(row.o[3 * 64 + c], row.answer[c], 1e-5);
  EXPECT_NEAR(row.correction[1], std::exp(row.maximum[0] - row.maximum[1]), 1e-6);
}

TEST(Inspect, NamesTheFirstTileThatIsWrong) {
  const Inspection lost = inspected(loses_a_tile);
  EXPECT_EQ(lost.first_wrong, 1);  // not 0, although the sum, being too small, makes every P too large
  EXPECT_EQ(lost.step.p[64], 0);
  const Inspection future = inspected(sees_the_future);
  EXPECT_FALSE(future.ok());
  EXPECT_GT(future.step.p[195], 0);
  EXPECT_EQ(future.oracle.p[195], 0);
}

TEST(Inspect, CommandLine) {
  const Chapter chapter = [] {
    Chapter found = book();
    found.gpu_spec = found.cpu_spec = spec_of_row();
    return found;
  }();
  const auto parse = [&](std::vector<const char*> words) {
    words.insert(words.begin(), "program");
    return parse_command_line(int(words.size()), words.data(), chapter);
  };
  const RowOf row = *parse({"--inspect", "1,17"}).options->inspected;
  EXPECT_EQ((std::vector{row.batch, row.head, row.query}), (std::vector{0, 1, 17}));
  EXPECT_FALSE(parse({}).options->inspected);
  for (const char* wrong : {"1", "1,", "2,17", "1,20", "1,0,17", "-1,17", "a,b", "0,1,17,3"})
    EXPECT_THROW(parse({"--inspect", wrong}), InputError) << wrong;
  EXPECT_THROW(parse({"--inspect-to", "folder"}), InputError);
}

}  // namespace
}  // namespace flashbook::testing
