/// \file
/// No fault goes unreported: Faults.<fault> runs one mutant in every mode and compares the reports
/// with what the list of faults expects.
#include <gtest/gtest.h>

#include <string>

#include "tests/mutation/modes.h"

namespace flashbook::mutation {
namespace {

class MutantTest : public testing::Test {
 public:
  explicit MutantTest(const Mutant& mutant) : mutant_(mutant) {}

  void TestBody() override {
    const Kernel& kernel = kernel_named(mutant_.kernel);
    const Spec spec = spec_of(kernel, kernel.seqlen_q, kernel.seqlen_k, mutant_.head_dim);
    for (Mode mode : kModes) {
      const std::string report = first_report(mode, kernel, mutant_.attention, spec);
      for (const Expectation& expected : mutant_.expected) {
        if (expected.mode != mode) continue;
        EXPECT_NE(report.find(expected.text), report.npos)
            << "in mode " << name_of(mode) << " the fault should be reported as \"" << expected.text
            << "\", not as \"" << report << '"';
      }
    }
  }

 private:
  const Mutant& mutant_;
};

}  // namespace
}  // namespace flashbook::mutation

int main(int count, char** arguments) {
  using flashbook::mutation::MutantTest;
  testing::InitGoogleTest(&count, arguments);
  for (const auto& mutant : flashbook::mutation::mutants())
    testing::RegisterTest("Faults", std::string(mutant.fault).c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [&mutant]() -> testing::Test* { return new MutantTest(mutant); });
  return RUN_ALL_TESTS();
}
