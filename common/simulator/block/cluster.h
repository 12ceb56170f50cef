/// \file
/// The blocks of a cluster. Internal to the simulator: what kernels call is in ../cluster.h.
///
/// Each block has an OS thread of its own, since `__shared__` arrays belong to one, and only one of them runs
/// at a time: another one has its turn when no thread of the block can go on, or, in random order, now and
/// then. So what a block does to another one needs no lock.
#pragma once
#include <array>
#include <cstdint>
#include <latch>
#include <semaphore>
#include <string>
#include <vector>

#include "common/simulator/block/scheduler.h"
#include "common/simulator/cluster.h"

namespace flashbook::sim {

class Worker;

constexpr int kMaxClusterBlocks = 8;  ///< that every launch may have

/// One that runs: its blocks by rank, whose turn it is, and the barrier at which all of its threads meet.
class Cluster final : public Awaited {
 public:
  /// Of these blocks, by rank, each of so many threads. They all begin.
  Cluster(std::vector<Worker*> blocks, int threads);
  /// Of one block, which runs: a launch without clusters has one around each block.
  explicit Cluster(Worker& worker);

  int size() const { return int(members_.size()); }
  Worker& block(int rank) const { return *members_[std::size_t(rank)].worker; }
  uint3 index_of(int rank) const { return members_[std::size_t(rank)].index; }

  /// The calling OS thread will run the block of that rank. Returns when there is one for each; false if
  /// there will not be.
  bool gather(int rank, uint3 index);
  /// So many OS threads will not come.
  void abandon(int missing);
  /// Returns when the block has its first turn; false if the cluster has ended with an error before.
  bool begin(int rank, bool at_random, uint64_t seed);
  /// The block is over.
  void end(int rank, bool failed);
  bool has_failed() const { return failed_; }
  bool has_begun(int rank) const { return members_[std::size_t(rank)].state != State::waits; }
  bool has_ended(int rank) const { return members_[std::size_t(rank)].state == State::ended; }

  // What a scheduler asks for (scheduler.h).
  Peers let_peers_run(int rank);
  bool mix(int rank, Random& random);

  // The cluster's barrier.
  void arrive(Worker& worker, const char* what, bool releases, Location where);
  void wait(Worker& worker, const char* what, Location where);
  /// The current thread of a block has exited.
  void leave(Worker& worker);
  /// How often a thread has arrived.
  uint32_t arrivals(const Worker& worker, int thread) const;
  /// Whether the current thread of a block knows that so many rounds are complete: it has waited for them, or
  /// for one that has.
  bool knows_round(const Worker& worker, uint32_t rounds) const;

  std::string describe_wait(const Thread& thread) const override;
  /// "the shared memory of block (1,0,0), rank 1 of the cluster", if the address lies in that of another
  /// block than the caller's; else empty.
  std::string describe_peer(const Worker& caller, const void* address) const;
  /// "block (1,0,0), rank 1 of the cluster".
  std::string describe_block(int rank) const;
  /// Where the other blocks' threads are, for the report of one that is stuck.
  std::string describe_others(const Worker& stuck) const;

  /// Throws Error unless the current thread of a block may reach into that of another rank now: it knows that
  /// it has begun, and it has not exited.
  void require_peer(const Worker& worker, const char* what, int rank, Location where) const;
  void require_rank(const char* what, int rank, Location where) const;

  /// Whether a block has asked for places in another one's memory (mapa).
  void note_mapped(int from, int to) { members_[std::size_t(from)].mapped |= 1u << to; }
  bool has_mapped(int from, int to) const { return members_[std::size_t(from)].mapped >> to & 1; }

 private:
  enum class State : uint8_t { waits, runs, ended };
  struct OfThread {
    uint32_t arrivals = 0, waits = 0;
    bool exited = false;
  };
  struct Member {
    Worker* worker = nullptr;
    uint3 index{};
    State state = State::waits;
    uint32_t mapped = 0;
    std::vector<OfThread> threads{};
    std::array<uint32_t, kMaxWarps> waiting{};  ///< lanes of each warp, at the barrier
    std::vector<uint64_t> turn_of_round{};      ///< when its first thread knew of each
    uint64_t turns = 0;  ///< that the scheduler had handed out, when others looked last
    int fruitless = 0;   ///< and its rounds of polling
  };

  Member& member_of(const Worker& worker);
  const Member& member_of(const Worker& worker) const;
  bool can_run(const Member& member) const;
  bool can_try(const Member& member) const;
  template <typename Can>
  int next(int after, const Can& can) const;
  void hand_over(int from, int to);
  bool notes_progress(const Member* except);
  void complete_if_full();

  std::vector<Member> members_;
  std::latch all_here_;
  std::array<std::binary_semaphore, kMaxClusterBlocks> turn_;
  bool abandoned_ = false, failed_ = false;
  uint32_t rounds_ = 0;  ///< of the barrier, that are complete
  int alive_, pending_;  ///< threads that have not exited, and those of them that have not arrived
};

/// The calling OS thread looks at another block as if it ran it.
class AsBlock {
 public:
  AsBlock(const Cluster& cluster, int rank);
  ~AsBlock();
  AsBlock(const AsBlock&) = delete;
  AsBlock& operator=(const AsBlock&) = delete;

 private:
  Worker* const worker_;
  const uint3 index_;
};

}  // namespace flashbook::sim
