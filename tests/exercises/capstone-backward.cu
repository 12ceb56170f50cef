#include "chapters/capstones/exercises/backward.cuh"
#include "common/attention/gradient.h"
#include "tests/exercises/capstone.h"

namespace flashbook::testing {
namespace {

class Backward : public HopperTest {};

/// Inputs are O and the log-sum-exp of a forward pass in FP64, rounded, and a dO. In rows that are not
/// compared, O is zero and the log-sum-exp is larger than any score.
Inputs inputs_of(const Spec& spec, InputKind kind) {
  Inputs inputs = make_inputs(spec, kind, 7 + course_seed());
  const Reference reference = make_reference(spec, inputs, all_rows(spec));
  inputs.o.assign(inputs.q.size(), 0);
  inputs.lse.assign(std::size_t(spec.q_rows()), 20);
  for (std::size_t i = 0; i < reference.rows.size(); ++i) {
    const auto row = std::size_t(reference.rows[i]), dims = std::size_t(spec.head_dim);
    std::copy_n(&reference.o[i * dims], dims, &inputs.o[row * dims]);
    inputs.lse[row] = float(reference.lse[i]);
  }
  inputs.o = rounded(spec.dtype, inputs.o);
  inputs.d_o = rounded(spec.dtype, random_numbers(inputs.q.size(), 8));
  return inputs;
}

void expect_right(const Spec& spec, InputKind kind = InputKind::normal) {
  const Inputs inputs = inputs_of(spec, kind);
  const std::size_t of_queries = inputs.q.size(), of_keys = inputs.k.size();
  DeviceArray q(spec.dtype, of_queries), k(spec.dtype, of_keys), v(spec.dtype, of_keys);
  DeviceArray o(spec.dtype, of_queries), d_o(spec.dtype, of_queries), lse(DType::f32, inputs.lse.size());
  const DeviceArray dq(spec.dtype, of_queries), dk(spec.dtype, of_keys), dv(spec.dtype, of_keys);
  const capstone::Backward problem = {q.as<__half>(),
                                      k.as<__half>(),
                                      v.as<__half>(),
                                      o.as<__half>(),
                                      d_o.as<__half>(),
                                      lse.as<float>(),
                                      dq.as<__half>(),
                                      dk.as<__half>(),
                                      dv.as<__half>(),
                                      spec.batch,
                                      spec.heads,
                                      spec.kv_heads,
                                      spec.seqlen_q,
                                      spec.seqlen_k,
                                      spec.causal(),
                                      spec.scale,
                                      device::multiprocessors()};
  const auto upload = [&] {
    q.upload(inputs.q), k.upload(inputs.k), v.upload(inputs.v);
    o.upload(inputs.o), d_o.upload(inputs.d_o), lse.upload(inputs.lse);
  };
  if (!run_plan([&](capstone::Plan& plan) { capstone::plan(plan, problem); }, upload)) return;
  const std::vector<float> got[] = {dq.download(), dk.download(), dv.download()};
  for (const TensorReference& reference : make_gradient_reference(spec, inputs)) {
    const bool is_q = reference.id == TensorId::dq, is_k = reference.id == TensorId::dk;
    const Verdict verdict = check(spec, reference, got[is_q ? 0 : is_k ? 1 : 2]);
    if (!verdict.ok)
      ADD_FAILURE() << (is_q   ? "dQ"
                        : is_k ? "dK"
                               : "dV")
                    << " of " << describe(spec) << ". The worst element: " << verdict.worst;
  }
}

TEST_F(Backward, AsManyKeysAsQueries) { expect_right(capstone_spec(1, 1, 1, 64, 64, false)); }
TEST_F(Backward, LengthsThatAreNoMultipleOfATile) { expect_right(capstone_spec(1, 2, 2, 45, 71, false)); }
TEST_F(Backward, ACausalMask) { expect_right(capstone_spec(1, 1, 1, 90, 90, true)); }
TEST_F(Backward, QueriesThatSeeNoKey) { expect_right(capstone_spec(1, 1, 1, 70, 30, true)); }
TEST_F(Backward, GroupsOfHeadsInABatch) { expect_right(capstone_spec(2, 4, 2, 23, 40, false)); }
TEST_F(Backward, SeveralTiles) { expect_right(capstone_spec(1, 2, 2, 128, 128, false)); }
TEST_F(Backward, SeveralTilesUnderACausalMask) { expect_right(capstone_spec(1, 2, 1, 192, 192, true)); }

}  // namespace
}  // namespace flashbook::testing
