/// \file
/// What the traced mode is made of, by calls: clocks, races, costs of requests.
#include <gtest/gtest.h>

#include "common/simulator/trace/clocks.h"
#include "common/simulator/trace/counts.h"
#include "common/simulator/trace/device_memory.h"
#include "common/simulator/trace/requests.h"
#include "common/simulator/trace/shared_races.h"

namespace flashbook::sim {
namespace {

constexpr Site kHere = 1, kThere = 2;

TEST(Clocks, KnowWhatWasReleasedBeforeTheRoundWasComplete) {
  Clocks clocks;
  clocks.begin(3);
  int object;
  const uint32_t before = clocks.now(0);
  clocks.release(0, &object);
  clocks.acquire(1, &object);
  EXPECT_LT(clocks.known(1, 0), before) << "the round is not complete";
  clocks.complete(&object);
  clocks.acquire(1, &object);
  EXPECT_GE(clocks.known(1, 0), before);
  EXPECT_LT(clocks.known(1, 0), clocks.now(0)) << "what thread 0 does after its release is not known";
  EXPECT_LT(clocks.known(2, 0), before);
}

TEST(Clocks, ARoundHandsOverNothingOfTheNext) {
  Clocks clocks;
  clocks.begin(2);
  int object;
  clocks.release(0, &object);
  clocks.complete(&object);
  const uint32_t second = clocks.now(0);
  clocks.release(0, &object);
  clocks.acquire(1, &object);
  EXPECT_LT(clocks.known(1, 0), second);
}

TEST(Clocks, KnowledgeIsPassedOn) {
  Clocks clocks;
  clocks.begin(64);
  int object;
  const uint32_t before = clocks.now(3);
  clocks.join(0, 0b1001);
  clocks.release(0, &object);
  clocks.complete(&object);
  clocks.acquire(40, &object);
  EXPECT_GE(clocks.known(40, 3), before);
  EXPECT_EQ(clocks.known(40, 1), 0u);
}

TEST(Clocks, AProxyFenceCoversWhatWasKnownThen) {
  Clocks clocks;
  clocks.begin(2);
  int object;
  const uint32_t before = clocks.now(0);
  EXPECT_LT(clocks.known_to_proxy(0, 0, Proxied::shared), before);
  clocks.fence_proxy(0, Proxied::shared);
  EXPECT_GE(clocks.known_to_proxy(0, 0, Proxied::shared), before);
  EXPECT_LT(clocks.known_to_proxy(0, 0, Proxied::shared), clocks.now(0));
  clocks.release(0, &object);
  clocks.complete(&object);
  clocks.acquire(1, &object);
  EXPECT_GE(clocks.known_to_proxy(1, 0, Proxied::shared), before);
}

/// A block of 256 threads with one tile in shared memory.
class Races : public testing::Test {
 protected:
  Races() {
    clocks_.begin(256);
    races_.begin();
  }
  std::optional<Race> store(int thread, std::size_t at = 0, std::size_t bytes = 16) {
    return races_.access(clocks_, thread, at, bytes, Access::store, kHere);
  }
  std::optional<Race> load(int thread, std::size_t at = 0, std::size_t bytes = 16) {
    return races_.access(clocks_, thread, at, bytes, Access::load, kThere);
  }
  /// All threads meet.
  void barrier() {
    for (int i = 0; i < 256; ++i) clocks_.release(i, this);
    clocks_.complete(this);
    for (int i = 0; i < 256; ++i) clocks_.acquire(i, this);
  }
  /// The async proxy does something for `thread`; returns the ticket.
  uint32_t async(int thread, const void* object, Access access, std::optional<Race>* race = nullptr) {
    const int agent = clocks_.agent(object);
    const uint32_t ticket = clocks_.next_ticket(agent);
    const auto found = races_.async_access(clocks_, thread, agent, ticket, 0, 16, access, kThere);
    if (race) *race = found;
    return ticket;
  }

  Clocks clocks_;
  SharedRaces races_{4096};
  int full_ = 0, empty_ = 0, products_ = 0;
};

TEST_F(Races, TwoPlacesAreNamed) {
  EXPECT_FALSE(store(5));
  const auto race = load(70);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->rule, Race::Rule::order);
  EXPECT_EQ(race->first.who, 5);
  EXPECT_EQ(race->first.site, kHere);
  EXPECT_EQ(race->second.who, 70);
  EXPECT_EQ(race->second.site, kThere);
}

TEST_F(Races, EveryReaderOfAWarpCounts) {
  for (int lane = 0; lane < 32; ++lane) load(lane);
  clocks_.join(0, 0x7fffffff);
  const auto race = store(0);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->first.who, 31);
}

/// The same word, loaded by these lanes of warp 1.
TEST_F(Races, LanesThatLoadTheSameAreNotedTogether) {
  const auto note = [&](uint32_t lanes, std::size_t bytes) {
    bool is_written;
    const bool noted = races_.notes_loads(clocks_.known_to_all(32, lanes), clocks_.now(32), 1, lanes, 0,
                                          bytes, kThere, is_written);
    return std::pair(noted, is_written);
  };
  EXPECT_EQ(note(0xf0, 4), std::pair(true, false)) << "nobody has written it";
  EXPECT_EQ(store(0)->first.who, 32 + 4);
  EXPECT_FALSE(note(0xf0, 4).first) << "thread 0 has, and no barrier came between";
  EXPECT_FALSE(note(0xf0, 2).first) << "nor a part of it";
  barrier();
  EXPECT_EQ(note(0xf0, 4), std::pair(true, true));
  EXPECT_EQ(note(0xf, 2), std::pair(true, true));
  barrier();
  EXPECT_FALSE(store(32 + 7)) << "a barrier came after the loads";
  EXPECT_TRUE(note(1u << 7, 4).first) << "its own";
  EXPECT_FALSE(note(3u << 7, 4).first) << "a neighbour's";
}

TEST_F(Races, ABarrierOrdersAndABlockForgets) {
  store(5);
  barrier();
  EXPECT_FALSE(load(70));
  EXPECT_FALSE(load(3));
  EXPECT_TRUE(store(5)) << "the readers have not been waited for";
  races_.begin();
  clocks_.begin(256);
  EXPECT_FALSE(store(100));
}

TEST_F(Races, BytesAndHalvesOfAWordAreTheirOwn) {
  EXPECT_FALSE(store(0, 0, 2));
  EXPECT_FALSE(store(1, 2, 2));
  EXPECT_FALSE(store(2, 4, 1));
  EXPECT_FALSE(store(3, 5, 1));
  EXPECT_TRUE(store(4, 0, 4));
}

TEST_F(Races, WhatTmaBringsIsReadAfterItsMbarrier) {
  const uint32_t ticket = async(0, &full_, Access::store);
  EXPECT_EQ(load(130)->rule, Race::Rule::async_write);
  races_.begin();
  const uint32_t again = async(0, &full_, Access::store);
  EXPECT_GT(again, ticket);
  clocks_.release_agent(clocks_.agent(&full_), again, &full_);
  clocks_.complete(&full_);
  clocks_.acquire(130, &full_);
  EXPECT_FALSE(load(130));
  EXPECT_TRUE(load(131)) << "this thread did not wait";
}

TEST_F(Races, TmaOverwritesWhatReadersHaveGivenBack) {
  load(130);
  std::optional<Race> race;
  async(0, &full_, Access::store, &race);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->rule, Race::Rule::order);
  races_.begin();
  load(130);
  clocks_.release(130, &empty_);
  clocks_.complete(&empty_);
  clocks_.acquire(0, &empty_);
  async(0, &full_, Access::store, &race);
  EXPECT_FALSE(race);
}

TEST_F(Races, TheAsyncProxySeesStoresAfterAFenceOnly) {
  std::optional<Race> race;
  store(130);
  barrier();
  async(0, &products_, Access::load, &race);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->rule, Race::Rule::proxy_fence);
  races_.begin();
  store(130);
  clocks_.fence_proxy(130, Proxied::shared);
  async(0, &products_, Access::load, &race);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->rule, Race::Rule::order) << "fenced, and nobody waited";
  barrier();
  async(0, &products_, Access::load, &race);
  EXPECT_FALSE(race);
}

TEST_F(Races, OperandsAreOverwrittenAfterTheirWait) {
  const uint32_t ticket = async(0, &products_, Access::load);
  const auto race = store(0);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->rule, Race::Rule::async_read);
  races_.begin();
  async(0, &products_, Access::load);
  clocks_.learn(0, clocks_.agent(&products_), ticket + 1);
  EXPECT_FALSE(store(0));
}

TEST(Agents, BeyondTheLastOneShareAnEntry) {
  Clocks clocks;
  clocks.begin(32);
  std::vector<char> objects(kAgents + 8);
  for (char& object : objects) EXPECT_LT(clocks.agent(&object), 32 + kAgents);
  EXPECT_EQ(clocks.agent(&objects[kAgents + 3]), clocks.agent(&objects[kAgents + 4]));
  EXPECT_NE(clocks.agent(&objects[0]), clocks.agent(&objects[1]));
}

TEST(Costs, OfAScatteredRequest) {
  uint64_t addresses[32];
  for (uint64_t i = 0; i < 32; ++i) addresses[i] = 1024 + (i * 7 % 32) * 4;  // a permutation of 128 bytes
  const Request all{~0u, 4, addresses};
  EXPECT_EQ(sectors_of(all).count, 4u);
  EXPECT_EQ(global_cost(all, sectors_of(all)).ideal, 4u);
  EXPECT_EQ(shared_cost(all).units, 1u);
  const Request one{1u << 9, 16, addresses};  // 16 bytes from 1024 + 124 on: across two sectors
  EXPECT_EQ(sectors_of(one).count, 2u);
  EXPECT_EQ(global_cost(one, sectors_of(one)).ideal, 1u);
}

TEST(Costs, EightBytesALaneAreServedByHalves) {
  uint64_t addresses[32];
  for (uint64_t i = 0; i < 32; ++i) addresses[i] = i * 8;
  EXPECT_EQ(shared_cost({~0u, 8, addresses}).units, 2u);
  EXPECT_EQ(shared_cost({0xffffu, 8, addresses}).units, 1u);
  for (uint64_t i = 0; i < 32; ++i) addresses[i] = i * 256;
  EXPECT_EQ(shared_cost({~0u, 8, addresses}).units, 32u);
}

TEST(DeviceTraffic, CountsEverySectorOnce) {
  alignas(256) static unsigned char memory[4096];
  const auto begin = std::uintptr_t(memory);
  DeviceMemory traffic(begin, begin + sizeof memory);
  for (int i = 0; i < 2; ++i) {
    traffic.touch(begin / 32, Access::load);
    traffic.touch(begin / 32 + 1, Access::store);
    traffic.touch(begin / 32 + 2, Access::atomic);
  }
  EXPECT_EQ(traffic.read_bytes(), 64u);
  EXPECT_EQ(traffic.written_bytes(), 64u);
}

/// Two blocks of 32 threads that use device memory.
class DeviceConflicts : public testing::Test {
 protected:
  DeviceConflicts() {
    clocks_[0].begin(32);
    clocks_[1].begin(32);
    order_[0].begin(0, published_);
    order_[1].begin(1, published_);
  }
  std::optional<BlockConflict> access(int block, int thread, std::size_t at, std::size_t bytes, Access access,
                                      Site site = kHere) {
    return memory_.access({uint64_t(block), thread, thread, clocks_[block].now(thread), order_[block]},
                          begin() + at, bytes, access, site);
  }
  static std::uintptr_t begin() { return std::uintptr_t(bytes_); }

  alignas(256) static inline unsigned char bytes_[4096];
  DeviceMemory memory_{begin(), begin() + sizeof bytes_};
  Published published_;
  Clocks clocks_[2];
  BlockOrder order_[2]{BlockOrder(clocks_[0]), BlockOrder(clocks_[1])};
};

TEST_F(DeviceConflicts, AreSoughtByteByByte) {
  EXPECT_FALSE(access(0, 0, 0, 1, Access::store));
  EXPECT_FALSE(access(0, 1, 1, 1, Access::store));
  EXPECT_FALSE(access(0, 0, 0, 1, Access::load)) << "its own";
  EXPECT_FALSE(access(1, 0, 2, 2, Access::store));
  EXPECT_TRUE(access(1, 0, 0, 1, Access::store)) << "though its neighbour was written in between";
  EXPECT_FALSE(access(0, 0, 32, 4, Access::load));
  EXPECT_FALSE(access(1, 0, 32, 4, Access::load));
  const auto conflict = access(1, 0, 32, 4, Access::store, kThere);
  ASSERT_TRUE(conflict);
  EXPECT_EQ(conflict->first.block, 0u);
  EXPECT_EQ(conflict->first.access, Access::load);
  EXPECT_EQ(conflict->second.block, 1u);
  EXPECT_EQ(conflict->address, begin() + 32);
  EXPECT_FALSE(access(1, 0, 2, 2, Access::load)) << "its own";
}

TEST_F(DeviceConflicts, WhatWasPublishedIsOrdered) {
  const std::uintptr_t flag = begin() + 64;
  access(0, 3, 0, 4, Access::store);
  order_[0].fence(3);
  access(0, 3, 4, 4, Access::store);  // after the fence
  order_[0].publish(3, flag);
  order_[1].acquire(5, flag);
  EXPECT_FALSE(access(1, 5, 0, 4, Access::load));
  EXPECT_TRUE(access(1, 5, 4, 4, Access::load));
  EXPECT_TRUE(access(1, 6, 0, 4, Access::store)) << "thread 6 has heard of nothing";
}

TEST_F(DeviceConflicts, OneThreadPublishesWhatAllHaveFenced) {
  const std::uintptr_t flag = begin() + 64;
  for (int thread = 0; thread < 32; ++thread) {
    access(0, thread, std::size_t(4 * thread), 4, Access::store);
    order_[0].fence(thread);
  }
  order_[0].publish(0, flag);
  order_[1].acquire(0, flag);
  EXPECT_FALSE(access(1, 0, 0, 4, Access::load));
  EXPECT_TRUE(access(1, 0, 4, 4, Access::load)) << "no barrier after the fences";
  clocks_[0].join(0, ~0u);
  order_[0].publish(0, flag);
  order_[1].acquire(0, flag);
  EXPECT_FALSE(access(1, 0, 8, 4, Access::load));
}

TEST_F(DeviceConflicts, WhoIsAboutToReadAFlagMaySeeItRise) {
  const std::uintptr_t flag = begin() + 64;
  access(0, 3, 0, 4, Access::store);
  order_[1].will_acquire(5, flag);
  order_[0].fence(3);
  order_[0].publish(3, flag);
  EXPECT_FALSE(access(1, 5, 0, 4, Access::load));
  EXPECT_TRUE(access(1, 6, 0, 4, Access::store));
}

TEST_F(DeviceConflicts, WithoutAFenceNothingIsPublished) {
  access(0, 3, 0, 4, Access::store);
  order_[0].publish(3, begin() + 64);
  order_[1].acquire(5, begin() + 64);
  EXPECT_TRUE(access(1, 5, 0, 4, Access::load));
}

TEST_F(DeviceConflicts, AtomicOperationsMeet) {
  EXPECT_FALSE(access(0, 0, 0, 4, Access::atomic));
  EXPECT_FALSE(access(1, 0, 0, 4, Access::atomic));
  EXPECT_TRUE(access(0, 1, 0, 4, Access::load)) << "a plain load does not";
}

}  // namespace
}  // namespace flashbook::sim
