/// \file
/// Errors in the use of mbarriers.
#include "common/ptx/mbarrier.h"

#include <cstring>
#include <string>
#include <vector>

#include "common/ptx/barrier.h"
#include "tests/simulator/simulated.h"

namespace flashbook {
namespace {

class MbarrierTest : public sim::SimulatorTest {};

/// Returns a barrier at the start of the block's shared memory.
uint64_t* the_barrier() { return dynamic_shared<uint64_t>(); }

std::string error_of_block(unsigned threads, const std::function<void()>& body) {
  return sim::error_of(1, threads, 4096, body);
}

/// Thread 0 initialises the barrier, then all threads continue.
void begin(uint32_t arrivals, const char* name = "full", int index = -1) {
  if (threadIdx.x == 0) {
    mbarrier_init(the_barrier(), arrivals);
    name_mbarrier(the_barrier(), name, index);
  }
  __syncthreads();
}

void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST_F(MbarrierTest, FreshBarrierHasCompletedAPhaseOfParityOne) {
  EXPECT_EQ(error_of_block(32,
                           [] {
                             begin(1);
                             mbarrier_wait(the_barrier(), 1);
                             EXPECT_FALSE(mbarrier_try_wait(the_barrier(), 0));
                           }),
            "");
}

TEST_F(MbarrierTest, OverwrittenBarrier) {
  constexpr int kLine = __LINE__ + 4;
  expect_contains(error_of_block(32,
                                 [] {
                                   if (threadIdx.x > 0) return;
                                   mbarrier_init(the_barrier(), 1);
                                   std::memset(dynamic_shared<unsigned char>(), 0, 64);
                                   mbarrier_arrive(the_barrier());
                                 }),
                  {"mbarrier_arrive at", "initialised at " + sim::line(kLine) + ", has been overwritten"});
}

TEST_F(MbarrierTest, ABarrierEndsBeforeItIsMadeAnew) {
  const auto anew = [](bool ends, bool early) {
    return error_of_block(64, [=] {
      begin(1);
      if (threadIdx.x == 0 && !early) mbarrier_arrive(the_barrier());
      if (!early || threadIdx.x >= 32) mbarrier_wait(the_barrier(), 0);
      if (!early) __syncthreads();
      if (threadIdx.x < 32 && early)
        for (int i = 0; i < 4; ++i) __syncwarp();
      if (threadIdx.x == 0 && ends) mbarrier_inval(the_barrier());
      if (threadIdx.x == 0) mbarrier_init(the_barrier(), 2);
      __syncthreads();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(the_barrier());
      mbarrier_wait(the_barrier(), 0);
    });
  };
  EXPECT_EQ(anew(true, false), "");
  expect_contains(anew(false, false),
                  {"was already initialised, by thread 0", "or call mbarrier_inval before doing so again"});
  sim::options().seed = 1;
  std::string early;
  for (; early.find("is still in use") == early.npos && sim::options().seed < 20; ++sim::options().seed)
    early = anew(true, true);
  expect_contains(early, {"mbarrier_inval at mbarrier_test.cpp:", "mbarrier full is still in use"});
  expect_contains(error_of_block(1,
                                 [] {
                                   begin(1);
                                   mbarrier_inval(the_barrier());
                                   mbarrier_arrive(the_barrier());
                                 }),
                  {"mbarrier_inval at mbarrier_test.cpp:", "has invalidated the mbarrier at"});
}

TEST_F(MbarrierTest, MisalignedOrForeignAddress) {
  expect_contains(
      error_of_block(1, [] { mbarrier_init(reinterpret_cast<uint64_t*>(dynamic_shared<char>() + 4), 1); }),
      {"misaligned address", "dynamic shared memory + 4", "not a multiple of 8"});
  uint64_t local = 0;
  expect_contains(error_of_block(1, [&] { mbarrier_init(&local, 1); }), {"not in the block's shared memory"});
}

TEST_F(MbarrierTest, CountsAndParitiesOutOfRange) {
  expect_contains(error_of_block(1, [] { mbarrier_init(the_barrier(), 0); }),
                  {"0 arrivals: give 1 to 1048575"});
  expect_contains(error_of_block(1, [] { mbarrier_init(the_barrier(), 1 << 20); }), {"1048576 arrivals"});
  expect_contains(error_of_block(1,
                                 [] {
                                   begin(1);
                                   mbarrier_wait(the_barrier(), 2);
                                 }),
                  {"names parity 2: use phase % 2, which is 0 or 1"});
}

TEST_F(MbarrierTest, BytesThatNobodyLoads) {
  expect_contains(error_of_block(1,
                                 [] {
                                   begin(1);
                                   mbarrier_arrive_expect_tx(the_barrier(), 256);
                                 }),
                  {"mbarrier full waits for bytes that no load delivers", "256 bytes pending"});
}

TEST_F(MbarrierTest, DeadlockNamesBarrierParityAndWhatIsMissing) {
  constexpr int kLine = __LINE__ + 4;
  const std::string error = error_of_block(64, [] {
    begin(2, "empty", 0);
    if (threadIdx.x == 0) mbarrier_arrive(the_barrier());
    if (threadIdx.x < 32) mbarrier_wait(the_barrier(), 0);
  });
  expect_contains(error,
                  {"deadlock in block (0,0,0)",
                   "warp 0, lanes 0-31: mbarrier_wait at " + sim::line(kLine) +
                       ", mbarrier empty[0] for parity 0: it is in phase 0 (parity 0), 1 of 2 arrivals "
                       "pending, 0 bytes pending",
                   "warp 1, lanes 0-31: exited"});
}

TEST_F(MbarrierTest, DeadlockSaysWhichParityAFirstWaitNames) {
  const std::string says = "The first wait for an empty stage must use parity 1";
  const auto error_if = [](bool a_wait_passed, bool an_arrival_came) {
    return error_of_block(64, [=] {
      begin(2, "empty", 0);
      if (a_wait_passed) mbarrier_wait(the_barrier(), 1);
      if (an_arrival_came && threadIdx.x == 0) mbarrier_arrive(the_barrier());
      mbarrier_wait(the_barrier(), 0);
    });
  };
  const std::string error = error_if(false, false);
  expect_contains(error, {says, "the first wait for a full stage uses parity 0", "warps 0-1, lanes 0-31: "});
  EXPECT_EQ(error.find("warp 1"), std::string::npos) << "one line for both warps\n" << error;
  // After a completed wait or an arrival, the initial parity is not the error.
  for (const std::string& other : {error_if(true, false), error_if(false, true)}) {
    EXPECT_EQ(other.find(says), std::string::npos) << other;
    expect_contains(
        other, {"Find the threads that should arrive, and compare their number with mbarrier_init's count"});
  }
}

TEST_F(MbarrierTest, DeadlockAtABarrierThatHasGoneOnIsToldFromOneWhereNobodyCame) {
  // Warp 0 ends phases 0 and 1 before warp 1 waits for phase 0, whose parity is also that of phase 2.
  constexpr int kSurplus = __LINE__ + 4;
  const std::string lapped = error_of_block(64, [] {
    begin(1);
    if (threadIdx.x == 0)
      for (int phase = 0; phase < 2; ++phase) mbarrier_arrive(the_barrier());
    __syncthreads();
    if (threadIdx.x >= 32) mbarrier_wait(the_barrier(), 0);
  });
  expect_contains(lapped,
                  {"If this wait is for phase 0, the first one that this thread has not seen complete, the "
                   "barrier has moved on without it (lapped): the thread that lets it advance must "
                   "wait for this one first. The first to arrive in phase "
                   "1, too early, was thread 0 in mbarrier_arrive at " +
                   sim::line(kSurplus)});
  // A thread that has waited for both phases is not behind.
  const std::string nobody_came = error_of_block(64, [] {
    begin(1);
    for (uint32_t phase = 0; phase < 3; ++phase) {
      __syncthreads();
      if (threadIdx.x == 0 && phase < 2) mbarrier_arrive(the_barrier());
      if (threadIdx.x >= 32) mbarrier_wait(the_barrier(), phase % 2);
    }
  });
  expect_contains(nobody_came, {"for parity 0: it is in phase 2", "Find the threads that should arrive"});
  EXPECT_EQ(nobody_came.find("lapped"), std::string::npos) << nobody_came;
}

// A thread that ignores the result reads too early, at least once.
TEST_F(MbarrierTest, TheFirstTryFailsUnlessThePhaseIsOver) {
  bool first = true, second = false, of_a_phase_that_is_over = false;
  EXPECT_EQ(error_of_block(64,
                           [&] {
                             begin(1);
                             if (threadIdx.x == 32) {
                               first = mbarrier_try_wait(the_barrier(), 0);
                               second = mbarrier_try_wait(the_barrier(), 0);
                               of_a_phase_that_is_over = mbarrier_try_wait(the_barrier(), 0);
                             }
                             if (threadIdx.x == 0) mbarrier_arrive(the_barrier());
                           }),
            "");
  EXPECT_FALSE(first);
  EXPECT_TRUE(second);
  EXPECT_TRUE(of_a_phase_that_is_over);
}

TEST_F(MbarrierTest, TryWaitLetsOthersRun) {
  for (sim::Async async : {sim::Async::eager, sim::Async::lazy, sim::Async::random}) {
    sim::options().async = async;
    EXPECT_EQ(error_of_block(64,
                             [] {
                               begin(32);
                               if (threadIdx.x >= 32) {
                                 mbarrier_arrive(the_barrier());
                                 return;
                               }
                               while (!mbarrier_try_wait(the_barrier(), 0)) {
                               }
                             }),
              "");
  }
}

TEST_F(MbarrierTest, OddWaitsAndArrivalsAreSuspects) {
  constexpr int kLine = __LINE__ + 4;
  const std::string stale = error_of_block(1, [] {
    begin(1);
    mbarrier_arrive(the_barrier());
    for (int i = 0; i < 2; ++i) mbarrier_wait(the_barrier(), 0);
    mbarrier_wait(the_barrier(), 1);
  });
  expect_contains(stale, {"deadlock", "suspect: a wait at " + sim::line(kLine) +
                                          ", thread 0 waited again for phase 0 of mbarrier full"});
  // A successful launch keeps its suspects, for when the result is wrong.
  sim::take_suspects();
  EXPECT_EQ(error_of_block(1,
                           [] {
                             begin(1);
                             mbarrier_arrive(the_barrier());
                             for (int i = 0; i < 2; ++i) mbarrier_wait(the_barrier(), 0);
                           }),
            "");
  expect_contains(sim::take_suspects(), {"waited again for phase 0 of mbarrier full"});
  EXPECT_EQ(sim::take_suspects(), "");
  const std::string twice = error_of_block(1, [] {
    begin(3);
    for (int i = 0; i < 2; ++i) mbarrier_arrive(the_barrier());
    mbarrier_wait(the_barrier(), 0);
  });
  expect_contains(twice, {"deadlock", "suspect: an arrival at " + sim::line(kLine + 18) +
                                          ", thread 0 arrived a second time in phase 0 of mbarrier full"});
}

}  // namespace
}  // namespace flashbook
