/// \file
/// How long the simulator takes: speed KERNEL... prints the processor time of kernels at two lengths, and
/// fails if one takes several times what it is meant to.
///
/// Times are of this process's own, not of the clock on the wall, and the limits are four times as high as
/// the aim: a busy machine must not fail, an operation that has become quadratic must.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>

#include "common/simulator/launch.h"
#include "tests/mutation/trial.h"

namespace flashbook::mutation {
namespace {

constexpr double kAllowance = 4;
constexpr int kRepetitions = 3;

/// What one head is meant to take on one core.
double aim_of(std::string_view kernel, int seqlen) {
  if (kernel == "hopper_attention" && seqlen == 1024) return 0.25;
  return 0;
}

/// The shortest of several runs.
double seconds_of(Attention attention, const Shape& shape) {
  const Problem problem(shape);
  double shortest = 1e30;
  for (int i = 0; i < kRepetitions; ++i) {
    const std::clock_t begin = std::clock();
    problem.solve(attention);
    shortest = std::min(shortest, double(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return shortest;
}

bool run() {
  bool fast = true;
  std::printf("%-18s %5s %5s %9s %9s\n", "kernel", "N", "d", "seconds", "aim");
  for (const Kernel& kernel : kernels())
    for (int seqlen : {256, 1024}) {
      const int head_dim = kernel.head_dim_128 ? 128 : 64;
      Shape shape = shape_of(kernel, seqlen, seqlen, head_dim);
      shape.heads = shape.kv_heads = 1;
      const double seconds = seconds_of(head_dim == 128 ? kernel.head_dim_128 : kernel.head_dim_64, shape);
      const double aim = aim_of(kernel.name, seqlen);
      const bool slow = aim > 0 && seconds > kAllowance * aim;
      std::printf("%-18s %5d %5d %9.3f %9.2f%s\n", kernel.name.data(), seqlen, head_dim, seconds, aim,
                  slow ? "  too slow" : "");
      fast = fast && !slow;
    }
  return fast;
}

}  // namespace
}  // namespace flashbook::mutation

int main() {
  flashbook::sim::options().os_threads = 1;
  return flashbook::mutation::run() ? 0 : 1;
}
