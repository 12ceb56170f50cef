#include <bit>
#include <span>

#include "chapters/capstones/exercises/variant.cuh"
#include "common/attention/bounds.h"
#include "tests/exercises/capstone.h"

namespace flashbook::testing {
namespace {

using capstone::Mask;
using capstone::Score;

/// A variant's parameters other than lengths and heads.
struct Parameters {
  int width = 5, stride = 3;
  float cap = 2;
  float by_head = 0.25f;  ///< for the first head; twice that for the second, and so on
};

class Variant : public HopperTest {
 protected:
  // Members, because argument-dependent lookup would find a student's function of the same name.
  /// Returns whether a query sees key j, which is d tokens before its own.
  static bool sees(const capstone::Variant& p, int d, int j) {
    switch (p.mask) {
      case Mask::dilated:
        return std::abs(d) < p.width * p.stride && d % p.stride == 0;
      case Mask::strided:
        return d >= 0 && (d < p.width || j % p.stride == 0);
      case Mask::blocks:
        return d >= 0 && ((j + d) / p.width == j / p.width || j % p.width == p.width - 1);
      case Mask::powers:
        return d == 0 || (d > 0 && std::has_single_bit(unsigned(d)));
    }
    return false;
  }

  /// Returns the problem with the variant's mask, pair by pair, and its changes to the scores, except a sink.
  static Spec varied(Spec spec, const capstone::Variant& p, const std::vector<float>& by_head) {
    for (int b = 0; b < spec.batch; ++b)
      for (int i = 0; i < spec.seqlen_q; ++i)
        for (int j = 0; j < spec.seqlen_k; ++j)
          spec.visibility.dense.visible.push_back(sees(p, i + spec.seqlen_k - spec.seqlen_q - j, j));
    RelativeBias& bias = spec.score.bias;
    switch (p.score) {
      case Score::capped:
        spec.score.softcap = p.cap;
        break;
      case Score::linear:
        spec.score.alibi = by_head;
        break;
      case Score::logarithmic:
        bias.reach = std::max(spec.seqlen_q, spec.seqlen_k);
        for (float factor : by_head)
          for (int d = -bias.reach; d <= bias.reach; ++d)
            bias.values.push_back(float(-double(factor) * std::log1p(std::abs(d))));
        break;
      case Score::sink:
        break;
    }
    return spec;
  }

  static void expect_right(const Spec& spec, const Parameters& parameters = {},
                           InputKind kind = InputKind::normal);
};

/// Adds a key to each row with that score and a value of zero, so that it takes its share of the row's sum.
void add_sinks(const Spec& spec, const std::vector<float>& by_head, Reference& reference) {
  for (std::size_t r = 0; r < reference.rows.size(); ++r) {
    const double sink = by_head[reference.rows[r] / spec.seqlen_q % spec.heads], before = reference.lse[r];
    const double top = std::max(sink, before);
    const double lse = top + std::log(std::exp(sink - top) + std::exp(before - top));
    const double share = std::exp(before - lse);
    reference.lse[r] = lse;
    reference.lse_bound[r] = share * reference.lse_bound[r] + 0x1p-20 * std::max(1.0, std::abs(lse));
    const std::span<double> o(&reference.o[r * spec.head_dim], spec.head_dim);
    for (double& x : o) x *= share;
    reference.o_bound[r] = share * reference.o_bound[r] + floor_for(spec.dtype) * largest_value(o);
  }
}

void Variant::expect_right(const Spec& spec, const Parameters& parameters, InputKind kind) {
  const Inputs inputs = make_inputs(spec, kind, 9 + course_seed());
  std::vector<float> by_head;
  for (int head = 0; head < spec.heads; ++head) by_head.push_back(parameters.by_head * float(head + 1));
  DeviceArray q(spec.dtype, inputs.q.size()), k(spec.dtype, inputs.k.size()), v(spec.dtype, inputs.v.size()),
      of_heads(DType::f32, by_head.size());
  const DeviceArray o(spec.dtype, inputs.q.size()), lse(DType::f32, std::size_t(spec.q_rows()));
  constexpr unsigned kScores = unsigned(Score::sink) + 1;
  const capstone::Variant problem = {q.as<__half>(),
                                     k.as<__half>(),
                                     v.as<__half>(),
                                     of_heads.as<float>(),
                                     o.as<__half>(),
                                     lse.as<float>(),
                                     spec.batch,
                                     spec.heads,
                                     spec.kv_heads,
                                     spec.seqlen_q,
                                     spec.seqlen_k,
                                     Mask(course_variant() / kScores),
                                     Score(course_variant() % kScores),
                                     parameters.width,
                                     parameters.stride,
                                     parameters.cap,
                                     spec.scale,
                                     device::multiprocessors()};
  const auto upload = [&] {
    q.upload(inputs.q), k.upload(inputs.k), v.upload(inputs.v), of_heads.upload(by_head);
  };
  const Spec asked = varied(spec, problem, by_head);
  if (!run_plan([&](capstone::Plan& plan) { capstone::plan(plan, problem); }, upload)) return;
  Reference reference = make_reference(asked, inputs, all_rows(asked));
  if (problem.score == Score::sink) add_sinks(asked, by_head, reference);
  expect_outputs(asked, reference, {o.download(), lse.download()});
}

TEST_F(Variant, AsManyKeysAsQueries) { expect_right(capstone_spec(1, 1, 1, 64, 64, false)); }
TEST_F(Variant, LengthsThatAreNoMultipleOfATile) { expect_right(capstone_spec(1, 2, 2, 75, 101, false)); }
TEST_F(Variant, MoreQueriesThanKeys) { expect_right(capstone_spec(1, 1, 1, 90, 40, false)); }
TEST_F(Variant, GroupsOfHeadsInABatch) { expect_right(capstone_spec(2, 4, 2, 33, 70, false)); }
TEST_F(Variant, OtherParameters) {
  expect_right(capstone_spec(1, 2, 1, 70, 90, false),
               {.width = 17, .stride = 4, .cap = 0.7f, .by_head = 1.5f});
}

}  // namespace
}  // namespace flashbook::testing
