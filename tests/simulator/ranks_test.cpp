// Tests ranks and their messages on whichever device this build targets, the GPU or the simulator.
#include "common/device/ranks.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "tests/require_gpu.h"

namespace flashbook::device {
namespace {

using RanksTest = MachineTest;

constexpr int kCount = 100;

Buffer filled(float value) {
  Buffer buffer(Place::device, kCount * sizeof(float));
  const std::vector<float> values(kCount, value);
  buffer.upload(std::as_bytes(std::span(values)));
  return buffer;
}

float first_of(const Buffer& buffer) {
  std::vector<float> values(kCount);
  buffer.download(std::as_writable_bytes(std::span(values)));
  return values.front() == values.back() ? values.front() : -1;
}

Message message(int rank, const Buffer& buffer) { return {rank, buffer.data(), buffer.bytes()}; }

/// Returns the error of run_ranks; empty if there is none.
std::string error_of(int ranks, Turns turns, const std::function<void(Rank&, Queue&)>& body) {
  try {
    run_ranks(
        ranks,
        [&](Rank& rank) {
          Queue queue;
          body(rank, queue);
          queue.synchronize();
        },
        Transport::copies, turns);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

/// Returns the error of a run with one rank's thread at a time, which must equal that with all threads free.
std::string error_of(int ranks, const std::function<void(Rank&, Queue&)>& body) {
  const std::string error = error_of(ranks, Turns::one_at_a_time, body);
  EXPECT_EQ(error_of(ranks, Turns::free, body), error);
  return error;
}

void expect_all_to_all(int ranks, Transport transport, Turns turns = default_turns()) {
  std::vector<float> got(std::size_t(ranks * ranks));
  run_ranks(
      ranks,
      [&](Rank& rank) {
        ASSERT_EQ(rank.count(), ranks);
        std::vector<Buffer> mine, theirs;
        std::vector<Message> sends, receives;
        for (int other = 0; other < ranks; ++other) {
          mine.push_back(filled(float(100 * rank.number() + other)));
          theirs.push_back(filled(-1));
          sends.push_back(message(other, mine.back()));
          receives.push_back(message(other, theirs.back()));
        }
        Queue queue;
        rank.exchange(queue, sends, receives);
        queue.synchronize();
        for (int other = 0; other < ranks; ++other)
          got[std::size_t(rank.number() * ranks + other)] = first_of(theirs[std::size_t(other)]);
      },
      transport, turns);
  for (int rank = 0; rank < ranks; ++rank)
    for (int other = 0; other < ranks; ++other)
      EXPECT_EQ(got[std::size_t(rank * ranks + other)], float(100 * other + rank));
}

TEST_F(RanksTest, AllToAllBringsEachItsOwn) {
  for (int ranks : {1, 2, 3, 8, 11})
    for (Turns turns : {Turns::one_at_a_time, Turns::free})
      expect_all_to_all(ranks, Transport::copies, turns);
}

TEST_F(RanksTest, NcclDoesTheSameWhereItIsThere) {
  if (device::machine() == Machine::simulator) {
    EXPECT_NE(why_not(Transport::nccl, 2).find("simulator"), std::string::npos);
    EXPECT_THROW(expect_all_to_all(2, Transport::nccl), UsageError);
    return;
  }
  EXPECT_NE(why_not(Transport::nccl, device_count() + 1), "");
  if (const std::string reason = why_not(Transport::nccl, device_count()); !reason.empty())
    GTEST_SKIP() << reason;
  for (int ranks = 1; ranks <= device_count(); ++ranks) expect_all_to_all(ranks, Transport::nccl);
}

// A send waits for its receive wherever that is, and messages between two ranks arrive in order.
TEST_F(RanksTest, MessagesComeInOrderAcrossExchanges) {
  std::array<float, 3> got{};
  run_ranks(2, [&](Rank& rank) {
    Queue queue;
    const Buffer one = filled(1), two = filled(2), three = filled(3);
    if (rank.number() == 0) {
      rank.exchange(queue, {message(1, one)}, {});
      rank.exchange(queue, {message(1, two), message(1, three)}, {});
    } else {
      const Buffer a = filled(-1), b = filled(-1), c = filled(-1);
      rank.exchange(queue, {}, {message(0, a), message(0, b)});
      rank.exchange(queue, {}, {message(0, c)});
      queue.synchronize();
      got = {first_of(a), first_of(b), first_of(c)};
    }
    queue.synchronize();
  });
  EXPECT_EQ(got, (std::array<float, 3>{1, 2, 3}));
}

TEST_F(RanksTest, SendsThatWaitForOneAnotherAreADeadlock) {
  const auto ring = [](bool grouped) {
    return error_of(3, [&](Rank& rank, Queue& queue) {
      const Buffer mine = filled(1), theirs = filled(0);
      const std::vector<Message> sends = {message((rank.number() + 1) % 3, mine)},
                                 receives = {message((rank.number() + 2) % 3, theirs)};
      if (grouped) return rank.exchange(queue, sends, receives);
      rank.exchange(queue, sends, {});
      rank.exchange(queue, {}, receives);
    });
  };
  EXPECT_EQ(ring(true), "");
  EXPECT_EQ(ring(false),
            "deadlock: rank 0 sends to rank 1, rank 1 sends to rank 2, rank 2 sends to rank 0, and none can "
            "continue. Put sends and their receives into the same exchange");
}

TEST_F(RanksTest, WhoeverWaitsForARankThatHasEndedIsTold) {
  const std::string error = error_of(2, [](Rank& rank, Queue& queue) {
    const Buffer theirs = filled(0);
    if (rank.number() == 1) rank.exchange(queue, {}, {message(0, theirs)});
  });
  EXPECT_NE(error.find("rank 1 receives from rank 0, rank 0 has ended"), std::string::npos) << error;
}

TEST_F(RanksTest, BothEndsOfAMessageHaveOneSize) {
  const std::string error = error_of(2, [](Rank& rank, Queue& queue) {
    const Buffer buffer = filled(0);
    if (rank.number() == 0)
      rank.exchange(queue, {{1, buffer.data(), 8}}, {});
    else
      rank.exchange(queue, {}, {{0, buffer.data(), 12}});
  });
  EXPECT_EQ(error, "rank 0 sends 8 bytes to rank 1, which receives 12: give both ends the same size");
}

// The others wait for it and end with it.
TEST_F(RanksTest, WhatOneRankThrowsEndsAll) {
  for (int failing : {0, 1, 2}) {
    std::atomic<int> ended_well = 0;
    const auto body = [&](Rank& rank, Queue& queue) {
      const Buffer mine = filled(1), theirs = filled(0);
      for (int hop = 0; hop < 5; ++hop) {
        if (rank.number() == failing && hop == 2) throw DeviceError("it broke");
        rank.exchange(queue, {message((rank.number() + 1) % 3, mine)},
                      {message((rank.number() + 2) % 3, theirs)});
      }
      ++ended_well;
    };
    EXPECT_EQ(error_of(3, body), "it broke");
    EXPECT_EQ(ended_well, 0);
  }
}

// On a GPU, a rank that waits for its device must not block the others.
TEST_F(RanksTest, FreeRanksRunAtTheSameTime) {
  std::mutex mutex;
  std::condition_variable changed;
  int here = 0;
  run_ranks(
      3,
      [&](Rank&) {
        std::unique_lock lock(mutex);
        ++here;
        changed.notify_all();
        changed.wait(lock, [&] { return here == 3; });
      },
      Transport::copies, Turns::free);
  EXPECT_EQ(here, 3);
}

}  // namespace
}  // namespace flashbook::device
