// Typical kernel faults must fail the check in every type, under every mask. Plain attention stands in for
// the kernel: its rounding errors are as large as any kernel may make.
#include "tests/support/faults.h"

#include <gtest/gtest.h>

#include "common/attention/check.h"
#include "common/attention/inputs.h"
#include "tests/support/specs.h"

namespace flashbook {
namespace {

using testing::Fault;

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3};

/// If fewer queries see a key, the tolerance for rounding may hide its lost value: see make_reference.
constexpr int kSeeing = 64;

Outputs plain_attention(const testing::Problem& problem) {
  const Reference reference = make_reference(problem.spec, problem.inputs, all_rows(problem.spec));
  return {reference.plain_o, {reference.lse.begin(), reference.lse.end()}};
}

void expect_faults_seen(const Spec& spec, std::span<const Fault> faults) {
  const Inputs inputs = make_inputs(spec, InputKind::normal, 1);
  const Reference reference = make_reference(spec, inputs, all_rows(spec));
  EXPECT_TRUE(check(spec, reference, plain_attention({spec, inputs})).ok()) << describe(spec);
  for (Fault fault : faults)
    for (int key : {spec.seqlen_k / 2, spec.seqlen_k - kSeeing}) {
      const CheckResult result =
          check(spec, reference, plain_attention(with_fault(spec, inputs, fault, key)));
      EXPECT_FALSE(result.o.ok) << describe(spec) << ", " << name_of(fault) << ", key " << key;
    }
}

class Faults : public ::testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  Spec spec_of(int queries, int keys, int head_dim) const {
    return testing::make_spec(queries, keys, head_dim, std::get<1>(GetParam()), std::get<0>(GetParam()));
  }
};

TEST_P(Faults, FailInShortSequences) { expect_faults_seen(spec_of(65, 65, 64), testing::kFaults); }

TEST_P(Faults, FailInLongerSequences) { expect_faults_seen(spec_of(333, 333, 64), testing::kFaults); }

TEST_P(Faults, FailWithLargerHeads) {
  for (int head_dim : {128, 256}) expect_faults_seen(spec_of(100, 200, head_dim), testing::kFaults);
}

TEST_P(Faults, OfValuesFailInAThousandKeys) {
  constexpr Fault kLost[] = {Fault::zero_value_row};
  expect_faults_seen(spec_of(1000, 1000, 64), kLost);
}

TEST_P(Faults, FailInTheLastOfGroupedHeads) {
  Spec spec = spec_of(65, 65, 64);
  spec.batch = 2, spec.heads = 4, spec.kv_heads = 2;
  expect_faults_seen(spec, testing::kFaults);
}

INSTANTIATE_TEST_SUITE_P(TypesAndMasks, Faults,
                         ::testing::Combine(::testing::ValuesIn(kTypes), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_causal" : "_full");
                         });

TEST(Fault, OfOneKeyFailsUnderOtherMasks) {
  constexpr Fault kOneKeyFaults[] = {Fault::zero_value_row, Fault::swap_key_rows};
  for (DType type : kTypes)
    for (const Visibility& visibility :
         {Visibility{.window = {.left = 100, .right = 0, .sinks = 4}},
          Visibility{.prefix = 40, .lengths = {300}},
          Visibility{.window = {.right = 0}, .documents = {{0, 100, 333}, {0, 100, 333}}}})
      expect_faults_seen({{.seqlen_q = 333, .seqlen_k = 333, .dtype = type}, visibility}, kOneKeyFaults);
}

}  // namespace
}  // namespace flashbook
