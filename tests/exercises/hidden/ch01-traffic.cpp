#include "chapters/01_naive_attention/exercises/traffic.h"
#include "common/attention/cost.h"
#include "tests/exercises/predicted.h"
#include "tests/support/shapes.h"

namespace flashbook::testing {
namespace {

using naive::Traffic;

Shape shape_of(const Traffic& p) {
  return make_shape(int(p.tokens), int(p.tokens), int(p.head_dim), true, DType::f16, int(p.heads),
                    int(p.kv_heads));
}

/// The model that the chapter reports, without the log-sum-exp: so many bytes a pair for S and P, beside what
/// no kernel can avoid.
double bytes(const Traffic& p, double a_pair) {
  const Shape shape = shape_of(p);
  return compulsory_bytes(shape) - sizeof(float) * double(shape.q_rows()) + a_pair * visible_pairs(shape);
}

void expect_formula(double (Traffic::*predicted)() const, double (*want)(const Traffic&)) {
  expect_predicted<Traffic>({{"heads", &Traffic::heads, {8, 16, 24, 40, 64}},
                             {"kv_heads", &Traffic::kv_heads, {1, 2, 4, 8}},
                             {"tokens", &Traffic::tokens, {1024, 1536, 3072, 4096, 5120}},
                             {"head_dim", &Traffic::head_dim, {64, 96, 128, 192, 256}}},
                            predicted, want);
}

TEST(Traffic, Pairs) {
  expect_formula(&Traffic::pairs, [](const Traffic& p) { return visible_pairs(shape_of(p), 0, 0); });
}
TEST(Traffic, Flops) {
  expect_formula(&Traffic::flops, [](const Traffic& p) { return flops(shape_of(p)); });
}
TEST(Traffic, InputOutputBytes) {
  expect_formula(&Traffic::input_output_bytes, [](const Traffic& p) { return bytes(p, 0); });
}
TEST(Traffic, ScoreBytes) {
  expect_formula(&Traffic::score_bytes,
                 [](const Traffic& p) { return (4 + 2) * p.tokens * p.tokens * p.heads; });
}
TEST(Traffic, Step1Bytes) {
  expect_formula(&Traffic::step1_bytes, [](const Traffic& p) { return bytes(p, 4 * 4 + 2 * 2); });
}
TEST(Traffic, Step4Bytes) {
  expect_formula(&Traffic::step4_bytes, [](const Traffic& p) { return bytes(p, 2 * 4 + 2 * 2); });
}
TEST(Traffic, FlopsPerByte) {
  expect_formula(&Traffic::flops_per_byte,
                 [](const Traffic& p) { return flops(shape_of(p)) / bytes(p, 2 * 4 + 2 * 2); });
}

}  // namespace
}  // namespace flashbook::testing
