// Every step of every chapter, with the kernels that `./flashbook run` builds, for `./flashbook test`.
// conformance.cpp tests all kernels, chapter by chapter.
#include "tests/chapters/every_chapter.h"

#include "common/attention/inputs.h"
#include "tests/chapters/right.h"
#include "tests/require_gpu.h"
#include "tests/support/cases.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

/// A chapter and one of the operations that its steps compute.
struct Subject {
  const Chapter* chapter;
  const Chapter* before;  ///< null if it computes no gradients and the steps do
  Operation operation;
};

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const auto& [chapter, before] : kEveryChapter)
    for (const Operation operation : {Operation::forward, Operation::backward, Operation::decode})
      if (!chapter->steps_of(operation).empty()) {
        const bool comparable =
            before && (operation != Operation::backward || !before->steps_of(operation).empty());
        all.push_back({chapter, comparable ? before : nullptr, operation});
      }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Subject>& info) {
  return "ch" + std::string(info.param.chapter->name) + "_" +
         std::string(flashbook::name_of(info.param.operation));
}

class Program : public MachineTest, public ::testing::WithParamInterface<Subject> {};

TEST_P(Program, IsRightAndAgreesWithTheChapterBefore) {
  const auto& [chapter, before, operation] = GetParam();
  expect_program_right(*chapter, before, operation);
}

INSTANTIATE_TEST_SUITE_P(EveryChapter, Program, ::testing::ValuesIn(subjects()), name_of);

/// With the simulator's warps in random order, which exposes kernels that depend on the order.
class RandomOrder : public Program {};

TEST_P(RandomOrder, OfWarpsChangesNothing) {
  const auto& [chapter, before, operation] = GetParam();
  const std::vector<Spec> specs = quick_specs(*chapter, chapter->default_spec().head_dim);
  for (std::size_t i = 0; i < specs.size(); i += 2) {
    const Spec& spec = specs[i];
    const RandomWarpOrder order(i + 1);
    expect_steps_right(*chapter, operation, spec, make_inputs(operation, spec, InputKind::normal, 13));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryChapter, RandomOrder, ::testing::ValuesIn(subjects()), name_of);

}  // namespace
}  // namespace flashbook::testing
