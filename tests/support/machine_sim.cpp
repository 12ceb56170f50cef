#include <pthread.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>
#include <utility>

#include "common/simulator/block/watchdog.h"
#include "common/simulator/launch.h"
#include "common/simulator/trap.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

constexpr int kSamples = 8;

/// Returns the position of the observed thread. Never destroyed: the watching thread may outlive main().
sim::LongTurn& turn() {
  static auto& turn = *new sim::LongTurn;
  return turn;
}

/// Reports from another thread, since describing a position allocates memory, which a signal handler must not
/// do.
void watch(pthread_t thread, int seconds) {
  using namespace std::chrono_literals;
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  for (int i = 0; i < kSamples; ++i) {
    pthread_kill(thread, SIGPROF);
    std::this_thread::sleep_for(20ms);
  }
  std::printf("After %d s it still runs%s.\n", seconds, turn().describe_loop().c_str());
}

}  // namespace

std::optional<uint64_t> kernels_launched() { return sim::counts().launches; }

void tell_where_it_computes(int seconds) {
  turn();
  std::signal(SIGPROF, [](int) { turn().tick(1, 0); });
  std::thread(watch, pthread_self(), seconds).detach();
}

RandomWarpOrder::RandomWarpOrder(uint64_t seed) { sim::options().seed = seed; }
RandomWarpOrder::~RandomWarpOrder() { sim::options().seed = 0; }

InBackground::InBackground(Async async, uint64_t seed) : before_(Async(sim::options().async)) {
  sim::options().async = sim::Async(async);
  sim::options().seed = seed;
}
InBackground::~InBackground() {
  sim::options().async = sim::Async(before_);
  sim::options().seed = 0;
}

ExactSums::ExactSums() : before_(std::exchange(sim::options().exact, true)) {}
ExactSums::~ExactSums() { sim::options().exact = before_; }

}  // namespace flashbook::testing
