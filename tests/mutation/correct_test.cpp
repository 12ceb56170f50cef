/// \file
/// The unmodified kernels compute attention and cause no report: one test per kernel.
#include <string>
#include <utility>

#include "tests/mutation/trial.h"
#include "tests/require_gpu.h"

namespace flashbook::mutation {
namespace {

class CorrectTest : public MachineTest {
 public:
  explicit CorrectTest(const Kernel& kernel) : kernel_(kernel) {}

  void TestBody() override {
    const std::pair<int, int> shortened{std::min(kernel_.seqlen_q, 17), 65};  // most of a tile is missing
    for (const auto& [seqlen_q, seqlen_k] :
         {std::pair(kernel_.seqlen_q, kernel_.seqlen_k), shortened, std::pair(1, 1), std::pair(64, 128)})
      for (const auto& [head_dim, attention] :
           {std::pair(64, kernel_.head_dim_64), std::pair(128, kernel_.head_dim_128)}) {
        if (!attention) continue;
        // A single pair and whole tiles are tested with one head dimension.
        if (head_dim == 128 && kernel_.head_dim_64 && seqlen_k != kernel_.seqlen_k && seqlen_k != 65)
          continue;
        const Spec spec = spec_of(kernel_, seqlen_q, seqlen_k, head_dim);
        EXPECT_EQ(try_in_every_way(kernel_, attention, spec), "") << describe(spec);
      }
  }

 private:
  const Kernel& kernel_;
};

const bool registered = [] {
  for (const Kernel& kernel : kernels())
    testing::RegisterTest("correct", std::string(kernel.name).c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [&kernel]() -> testing::Test* { return new CorrectTest(kernel); });
  return true;
}();

}  // namespace
}  // namespace flashbook::mutation
