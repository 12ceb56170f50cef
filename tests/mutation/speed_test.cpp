/// \file
/// speed_test [traced]
///
/// How long the simulator takes: prints the processor time of every kernel at two lengths, and fails if one
/// takes several times what it is meant to.
///
/// Times are of this process's own, not of the clock on the wall, and the limits are four times as high as
/// the aim: a busy machine must not fail, an operation that has become quadratic must.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string_view>

#include "common/simulator/launch.h"
#include "tests/mutation/trial.h"

namespace flashbook::mutation {
namespace {

constexpr double kAllowance = 4;
constexpr int kRepetitions = 3;

/// What one head is meant to take on one core; 0 if nothing is said. The traced mode is for short problems.
double aim_of(bool traced, std::string_view kernel, int seqlen) {
  if (traced) return 0.5;
  return kernel == "hopper_attention" && seqlen == 1024 ? 0.25 : 0;
}

/// The shortest of several runs.
double seconds_of(const Kernel& kernel, Attention attention, const Shape& shape) {
  const Trial trial(kernel, attention, shape);
  double shortest = 1e30;
  for (int i = 0; i < kRepetitions; ++i) {
    const std::clock_t begin = std::clock();
    trial.run();
    shortest = std::min(shortest, double(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return shortest;
}

/// `traced`: whether the kernels are.
bool run(bool traced) {
  bool fast = true;
  std::printf("%-18s %7s %5s %4s %9s\n", "kernel", "queries", "keys", "d", "seconds");
  for (const Kernel& kernel : kernels())
    for (int seqlen : {256, 1024}) {
      if (traced && seqlen > 256) continue;
      const int head_dim = kernel.head_dim_128 ? 128 : 64;
      // A kernel that is made for few queries gets few.
      Shape shape = shape_of(kernel, kernel.seqlen_q < 100 ? kernel.seqlen_q : seqlen, seqlen, head_dim);
      shape.heads = shape.kv_heads = 1;
      const double seconds =
          seconds_of(kernel, head_dim == 128 ? kernel.head_dim_128 : kernel.head_dim_64, shape);
      const double aim = aim_of(traced, kernel.name, seqlen);
      const bool slow = aim > 0 && seconds > kAllowance * aim;
      std::printf("%-18s %7d %5d %4d %9.3f", kernel.name.data(), shape.seqlen_q, seqlen, head_dim, seconds);
      if (aim > 0) std::printf("   aim %.2f%s", aim, slow ? ": too slow" : "");
      std::printf("\n");
      fast = fast && !slow;
    }
  return fast;
}

}  // namespace
}  // namespace flashbook::mutation

int main(int argc, char** argv) {
  flashbook::sim::options().os_threads = 1;
  return flashbook::mutation::run(argc > 1 && std::string_view(argv[1]) == "traced") ? 0 : 1;
}
