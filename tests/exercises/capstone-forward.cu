#include "chapters/capstones/exercises/forward.cuh"
#include "tests/exercises/capstone.h"

namespace flashbook::testing {
namespace {

class Forward : public HopperTest {};

void expect_right(const Spec& spec, InputKind kind = InputKind::normal) {
  const Inputs inputs = make_inputs(spec, kind, 6 + course_seed());
  DeviceArray q(spec.dtype, inputs.q.size()), k(spec.dtype, inputs.k.size()), v(spec.dtype, inputs.v.size());
  const DeviceArray o(spec.dtype, inputs.q.size()), lse(DType::f32, std::size_t(spec.q_rows()));
  const capstone::Forward problem = {q.as<__half>(),
                                     k.as<__half>(),
                                     v.as<__half>(),
                                     o.as<__half>(),
                                     lse.as<float>(),
                                     spec.batch,
                                     spec.heads,
                                     spec.kv_heads,
                                     spec.seqlen_q,
                                     spec.seqlen_k,
                                     spec.causal(),
                                     spec.scale,
                                     device::multiprocessors()};
  const auto upload = [&] { q.upload(inputs.q), k.upload(inputs.k), v.upload(inputs.v); };
  if (!run_plan([&](capstone::Plan& plan) { capstone::plan(plan, problem); }, upload)) return;
  expect_outputs(spec, make_reference(spec, inputs, all_rows(spec)), {o.download(), lse.download()});
}

TEST_F(Forward, AsManyKeysAsQueries) { expect_right(capstone_spec(1, 1, 1, 64, 64, false)); }
TEST_F(Forward, LengthsThatAreNoMultipleOfATile) { expect_right(capstone_spec(1, 2, 2, 75, 101, false)); }
TEST_F(Forward, ACausalMask) { expect_right(capstone_spec(1, 1, 1, 130, 130, true)); }
TEST_F(Forward, QueriesThatSeeNoKey) { expect_right(capstone_spec(1, 1, 1, 90, 40, true)); }
TEST_F(Forward, GroupsOfHeadsInABatch) { expect_right(capstone_spec(2, 4, 2, 33, 70, false)); }
TEST_F(Forward, SeveralTiles) { expect_right(capstone_spec(1, 2, 2, 256, 256, false)); }
TEST_F(Forward, SeveralTilesUnderACausalMask) { expect_right(capstone_spec(1, 4, 2, 256, 256, true)); }

}  // namespace
}  // namespace flashbook::testing
