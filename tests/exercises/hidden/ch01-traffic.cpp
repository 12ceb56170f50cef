#include "common/attention/cost.h"
#include "tests/support/specs.h"

#define DIGESTS(...) static_assert(true)  // the tests below take their place
#include "tests/exercises/ch01-traffic.cpp"

namespace flashbook::testing {
namespace {

Spec spec_of(const Problem& p) {
  return make_spec(int(p.tokens), int(p.tokens), int(p.head_dim), true, DType::f16, int(p.heads),
                   int(p.kv_heads));
}

/// Returns the bytes by the chapter's model without the log-sum-exp: these bytes per pair for S and P, on top
/// of the bytes that no kernel can avoid.
double bytes(const Problem& p, double a_pair) {
  const Spec spec = spec_of(p);
  return compulsory_bytes(spec) - sizeof(float) * double(spec.q_rows()) + a_pair * visible_pairs(spec);
}

PREDICTION(Traffic, Pairs, pairs) { return visible_pairs(spec_of(p), 0, 0); }
PREDICTION(Traffic, Flops, flops) { return flops(spec_of(p)); }
PREDICTION(Traffic, InputOutputBytes, input_output_bytes) { return bytes(p, 0); }
PREDICTION(Traffic, ScoreBytes, score_bytes) { return (4 + 2) * p.tokens * p.tokens * p.heads; }
PREDICTION(Traffic, Step1Bytes, step1_bytes) { return bytes(p, 4 * 4 + 2 * 2); }
PREDICTION(Traffic, Step4Bytes, step4_bytes) { return bytes(p, 2 * 4 + 2 * 2); }
PREDICTION(Traffic, FlopsPerByte, flops_per_byte) { return flops(spec_of(p)) / bytes(p, 2 * 4 + 2 * 2); }

}  // namespace
}  // namespace flashbook::testing
