#include "chapters/01_naive_attention/exercises/traffic.h"
#include "common/attention/cost.h"
#include "tests/exercises/predicted.h"
#include "tests/support/shapes.h"

namespace flashbook::testing {
namespace {

using Problem = naive::Traffic;

Shape shape_of(const Problem& p) {
  return make_shape(int(p.tokens), int(p.tokens), int(p.head_dim), true, DType::f16, int(p.heads),
                    int(p.kv_heads));
}

/// The model that the chapter reports, without the log-sum-exp: so many bytes a pair for S and P, beside what
/// no kernel can avoid.
double bytes(const Problem& p, double a_pair) {
  const Shape shape = shape_of(p);
  return compulsory_bytes(shape) - sizeof(float) * double(shape.q_rows()) + a_pair * visible_pairs(shape);
}

const std::vector<Size<Problem>> kSizes = {{"heads", &Problem::heads, {8, 16, 24, 40, 64}},
                                           {"kv_heads", &Problem::kv_heads, {1, 2, 4, 8}},
                                           {"tokens", &Problem::tokens, {1024, 1536, 3072, 4096, 5120}},
                                           {"head_dim", &Problem::head_dim, {64, 96, 128, 192, 256}}};

PREDICTION(Traffic, Pairs, pairs) { return visible_pairs(shape_of(p), 0, 0); }
PREDICTION(Traffic, Flops, flops) { return flops(shape_of(p)); }
PREDICTION(Traffic, InputOutputBytes, input_output_bytes) { return bytes(p, 0); }
PREDICTION(Traffic, ScoreBytes, score_bytes) { return (4 + 2) * p.tokens * p.tokens * p.heads; }
PREDICTION(Traffic, Step1Bytes, step1_bytes) { return bytes(p, 4 * 4 + 2 * 2); }
PREDICTION(Traffic, Step4Bytes, step4_bytes) { return bytes(p, 2 * 4 + 2 * 2); }
PREDICTION(Traffic, FlopsPerByte, flops_per_byte) { return flops(shape_of(p)) / bytes(p, 2 * 4 + 2 * 2); }

}  // namespace
}  // namespace flashbook::testing
