#include "common/simulator/block/cluster.h"

#include <algorithm>
#include <utility>

#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/language.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {

AsBlock::AsBlock(const Cluster& cluster, int rank) : worker_(current_worker), index_(blockIdx) {
  current_worker = &cluster.block(rank);
  blockIdx = cluster.index_of(rank);
}

AsBlock::~AsBlock() {
  current_worker = worker_;
  blockIdx = index_;
}

namespace {

template <std::size_t... kIndex>
std::array<std::binary_semaphore, sizeof...(kIndex)> closed(std::index_sequence<kIndex...>) {
  return {((void)kIndex, std::binary_semaphore(0))...};
}

}  // namespace

Cluster::Cluster(std::vector<Worker*> blocks, int threads)
    : members_(blocks.size()),
      all_here_(std::ptrdiff_t(blocks.size())),
      turn_(closed(std::make_index_sequence<kMaxClusterBlocks>{})),
      alive_(int(blocks.size()) * threads),
      pending_(alive_) {
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    members_[rank].worker = blocks[rank];
    members_[rank].threads.resize(std::size_t(threads));
  }
}

Cluster::Cluster(Worker& worker) : Cluster({&worker}, int(worker.scheduler.threads().size())) {
  members_[0].index = blockIdx;
  members_[0].state = State::runs;
  for (const Thread& thread : worker.scheduler.threads())
    members_[0].threads[std::size_t(thread.number)].exited = thread.exited;
  alive_ = pending_ = worker.scheduler.alive();
}

bool Cluster::gather(int rank, uint3 index) {
  Member& self = members_[std::size_t(rank)];
  self.index = index;
  self.worker->memory.set_accessible(false);
  all_here_.arrive_and_wait();
  return !abandoned_;
}

void Cluster::abandon(int missing) {
  abandoned_ = true;
  all_here_.count_down(missing);
}

bool Cluster::begin(int rank, bool at_random, uint64_t seed) {
  Member& self = members_[std::size_t(rank)];
  if (rank == 0) turn_[at_random ? std::size_t(Random(seed, 0).below(size())) : 0].release();
  turn_[std::size_t(rank)].acquire();
  if (failed_) return false;
  self.worker->memory.set_accessible(true);
  self.state = State::runs;
  return true;
}

void Cluster::end(int rank, bool failed) {
  Member& self = members_[std::size_t(rank)];
  self.state = State::ended;
  failed_ = failed_ || failed;
  self.worker->memory.go_away();
  int to = failed_ ? -1 : next(rank, [&](const Member& member) { return can_run(member); });
  if (to < 0 && !failed_) to = next(rank, [&](const Member& member) { return can_try(member); });
  if (to < 0) to = next(rank, [](const Member& member) { return member.state != State::ended; });
  if (to >= 0) turn_[std::size_t(to)].release();
}

bool Cluster::can_run(const Member& member) const {
  return member.state == State::waits ||
         (member.state == State::runs && member.worker->scheduler.has_ready());
}

bool Cluster::can_try(const Member& member) const {
  return member.state == State::runs &&
         (member.worker->scheduler.is_polling() || member.worker->tensor_copies.any_load());
}

/// The next rank that can, and is not `after` itself; -1 if there is none.
template <typename Can>
int Cluster::next(int after, const Can& can) const {
  for (int i = 1; i < size(); ++i)
    if (const int rank = (after + i) % size(); can(members_[std::size_t(rank)])) return rank;
  return -1;
}

void Cluster::hand_over(int from, int to) {
  Worker& self = *members_[std::size_t(from)].worker;
  if (self.observer()) self.observer()->hands_over();
  turn_[std::size_t(to)].release();
  turn_[std::size_t(from)].acquire();
  self.scheduler.note_hand_over();
}

/// Whether another block has done more than poll in vain since the last look.
bool Cluster::notes_progress(const Member* except) {
  bool any = false;
  for (Member& member : members_) {
    const Scheduler& scheduler = member.worker->scheduler;
    const uint64_t turns = std::exchange(member.turns, scheduler.turns());
    const int fruitless = std::exchange(member.fruitless, scheduler.fruitless_polls());
    any |= &member != except && turns != member.turns && member.fruitless <= fruitless;
  }
  return any;
}

Peers Cluster::let_peers_run(int rank) {
  Member& self = members_[std::size_t(rank)];
  int to = next(rank, [&](const Member& member) { return can_run(member); });
  // In turn, one copy lands, or those who poll in one block try again.
  const bool tried = std::exchange(self.worker->has_tried, true);
  if (to < 0 && (tried || !can_try(self)))
    to = next(rank, [&](const Member& member) { return can_try(member); });
  if (to < 0) return Peers::are_stuck;
  hand_over(rank, to);
  self.worker->has_tried = false;
  if (failed_) return Peers::have_failed;
  if (notes_progress(&self)) self.worker->scheduler.forgive_polls();
  return Peers::have_run;
}

bool Cluster::mix(int rank, Random& random) {
  const int to = random.below(size());
  if (to == rank || !can_run(members_[std::size_t(to)])) return true;
  hand_over(rank, to);
  return !failed_;
}

Cluster::Member& Cluster::member_of(const Worker& worker) { return members_[std::size_t(worker.rank())]; }
const Cluster::Member& Cluster::member_of(const Worker& worker) const {
  return members_[std::size_t(worker.rank())];
}

void Cluster::arrive(Worker& worker, const char* what, bool releases, Location where) {
  const int self = worker.current_number();
  OfThread& mine = member_of(worker).threads[std::size_t(self)];
  if (mine.arrivals > mine.waits)
    throw Error(describe_call(what, where) +
                ": the thread arrives at the cluster's barrier a second time, and has not waited since the "
                "first: every cluster_arrive is followed by a cluster_wait of the same thread");
  ++mine.arrivals;
  if (Observer* observer = worker.observer(); observer && releases) observer->releases(self, this);
  worker.tell(what, where);
  --pending_;
  complete_if_full();
}

void Cluster::wait(Worker& worker, const char* what, Location where) {
  Member& member = member_of(worker);
  const Thread& self = worker.scheduler.current();
  OfThread& mine = member.threads[std::size_t(self.number)];
  if (mine.arrivals == mine.waits)
    throw Error(
        describe_call(what, where) +
        ": the thread waits at the cluster's barrier and has not arrived: cluster_arrive comes before "
        "(or cluster_sync does both)");
  worker.tell(what, where);
  if (rounds_ < mine.arrivals) {
    uint32_t& waiting = member.waiting[std::size_t(self.warp)];
    waiting |= 1u << self.lane;
    worker.scheduler.suspend(*this, what, where);
  }
  ++mine.waits;
  worker.scheduler.synchronise();
  if (member.turn_of_round.size() < mine.waits)
    member.turn_of_round.resize(mine.waits, worker.scheduler.turns());
  if (Observer* observer = worker.observer()) {
    observer->acquires(self.number, this);
    observer->learns_together(self.number, this, (mine.waits - 1) & 1);
  }
}

void Cluster::leave(Worker& worker) {
  OfThread& mine = member_of(worker).threads[std::size_t(worker.current_number())];
  mine.exited = true;
  --alive_;
  if (mine.arrivals <= rounds_) --pending_;
  complete_if_full();
}

/// Ends the barrier's round if all have come. Whoever waited can run again.
void Cluster::complete_if_full() {
  if (pending_ > 0 || alive_ == 0) return;
  ++rounds_;
  pending_ = alive_;
  std::vector<Observer*> observers;
  for (Member& member : members_) {
    Scheduler& scheduler = member.worker->scheduler;
    if (member.state != State::runs) continue;
    if (Observer* observer = member.worker->observer()) {
      observer->completes(this);
      observers.push_back(observer);
    }
    scheduler.progress();
    for (int warp = 0; warp < scheduler.warps(); ++warp)
      scheduler.make_ready(warp, std::exchange(member.waiting[std::size_t(warp)], 0));
  }
  if (!observers.empty()) observers.front()->completes_together(this, (rounds_ - 1) & 1, observers);
}

uint32_t Cluster::arrivals(const Worker& worker, int thread) const {
  return member_of(worker).threads[std::size_t(thread)].arrivals;
}

bool Cluster::knows_round(const Worker& worker, uint32_t rounds) const {
  if (rounds == 0) return true;
  const Member& member = member_of(worker);
  const int first = worker.current_number() / kWarpLanes * kWarpLanes;  // lanes know by __syncwarp
  for (int thread = first; thread < std::min(first + kWarpLanes, int(member.threads.size())); ++thread)
    if (member.threads[std::size_t(thread)].waits >= rounds) return true;
  return member.turn_of_round.size() >= rounds &&
         worker.scheduler.synchronised() > member.turn_of_round[rounds - 1];
}

std::string Cluster::describe_wait(const Thread&) const {
  std::string text = ", the cluster's barrier: " + std::to_string(alive_ - pending_) + " of " +
                     std::to_string(alive_) + " threads arrived";
  for (int rank = 0; rank < size(); ++rank) {
    int missing = 0, first = -1;
    const std::vector<OfThread>& threads = members_[std::size_t(rank)].threads;
    for (std::size_t thread = 0; thread < threads.size(); ++thread) {
      if (threads[thread].exited || threads[thread].arrivals > rounds_) continue;
      if (missing++ == 0) first = int(thread);
    }
    if (missing > 0)
      text += "; of rank " + std::to_string(rank) + " " + std::to_string(missing) +
              (missing == 1 ? " is missing, thread " : " are missing, thread ") + std::to_string(first) +
              (missing == 1 ? "" : " the first");
  }
  return text;
}

std::string Cluster::describe_block(int rank) const {
  return "block " + triple(index_of(rank)) + ", rank " + std::to_string(rank) + " of the cluster";
}

std::string Cluster::describe_peer(const Worker& caller, const void* address) const {
  for (int rank = 0; rank < size(); ++rank)
    if (&block(rank) != &caller && block(rank).memory.contains_known(address))
      return "the shared memory of " + describe_block(rank) +
             (!has_begun(rank)  ? ", which has not begun: cluster_sync comes before the first access"
              : has_ended(rank) ? ", which has exited: its threads must wait, at a cluster_sync at the end, "
                                  "for all who reach into its memory"
                                : "");
  return "";
}

std::string Cluster::describe_others(const Worker& stuck) const {
  std::string text;
  for (int rank = 0; rank < size(); ++rank) {
    if (&block(rank) == &stuck) continue;
    text += "\n" + describe_block(rank) + ":";
    if (!has_begun(rank)) text += " has not begun";
    if (has_ended(rank)) text += " has exited";
    if (!has_begun(rank) || has_ended(rank)) continue;
    const AsBlock as(*this, rank);
    if (const std::string missing = block(rank).mbarriers.missing_bytes(); !missing.empty())
      text += missing.substr(1);
    text += block(rank).describe_all_waits();
  }
  return text;
}

void Cluster::require_rank(const char* what, int rank, Location where) const {
  if (rank < 0 || rank >= size())
    throw Error(describe_call(what, where) + " names rank " + std::to_string(rank) + ": the cluster has " +
                (size() == 1 ? "1 block. device::launch_cluster launches larger ones"
                             : std::to_string(size()) + " blocks, ranks 0 to " + std::to_string(size() - 1)));
}

void Cluster::require_peer(const Worker& worker, const char* what, int rank, Location where) const {
  require_rank(what, rank, where);
  if (&block(rank) == &worker) return;
  if (has_ended(rank))
    throw Error(describe_call(what, where) + " reaches into " + describe_block(rank) +
                ", which has exited: its threads must wait, at a cluster_sync at the end, for all who reach "
                "into its memory");
  if (!knows_round(worker, 1))
    throw Error(describe_call(what, where) + " reaches into " + describe_block(rank) +
                ", of which this thread does not know whether it has begun: a cluster_sync comes before the "
                "first access to another block");
}

int cluster_rank(Location where) { return running_worker("cluster_rank", where).rank(); }

int cluster_size(Location where) {
  const Cluster* cluster = running_worker("cluster_size", where).cluster();
  return cluster ? cluster->size() : 1;
}

void* mapa(const void* place, int rank, Location where) {
  Worker& worker = running_worker("mapa", where);
  require_shared("mapa", place, 1, 1, where);
  Cluster& cluster = worker.cluster_around();
  cluster.require_rank("mapa", rank, where);
  cluster.note_mapped(worker.rank(), rank);
  return worker.memory.same_place_in(cluster.block(rank).memory, place);
}

void cluster_arrive(const char* what, bool releases, Location where) {
  Worker& worker = running_worker(what, where);
  worker.cluster_around().arrive(worker, what, releases, where);
}

void cluster_wait(const char* what, Location where) {
  Worker& worker = running_worker(what, where);
  worker.cluster_around().wait(worker, what, where);
}

namespace {

/// The number of a block's barrier at the place of the caller's.
std::size_t number_of_barrier(const char* what, const void* barrier, const Worker& worker,
                              const Worker& owner, Location where) {
  if (&owner == &worker) return worker.mbarriers.number_at(what, barrier, where);
  return owner.mbarriers.number_for_peer(what, worker.memory.same_place_in(owner.memory, barrier), owner,
                                         worker, where);
}

void arrive_at(const char* what, void* barrier, int rank, uint32_t bytes, bool arrives, Location where) {
  Worker& worker = running_worker(what, where);
  Cluster& cluster = worker.cluster_around();
  require_shared(what, barrier, sizeof(uint64_t), sizeof(uint64_t), where);
  cluster.require_peer(worker, what, rank, where);
  Worker& owner = cluster.block(rank);
  if (&owner == &worker && arrives) return worker.mbarriers.arrive(what, barrier, bytes, where);
  const std::size_t number = number_of_barrier(what, barrier, worker, owner, where);
  if (arrives && worker.observer())
    worker.observer()->publishes(worker.current_number(), owner.mbarriers[number].address,
                                 owner.mbarriers[number].phase & 1);
  worker.tell(what, where);
  owner.mbarriers.arrive_from(what, number, owner, worker, bytes, arrives, where);
}

}  // namespace

void mbarrier_arrive_at(void* barrier, int rank, Location where) {
  arrive_at("mbarrier_arrive_at", barrier, rank, 0, true, where);
}

void mbarrier_arrive_expect_tx_at(void* barrier, int rank, uint32_t bytes, Location where) {
  arrive_at("mbarrier_arrive_expect_tx_at", barrier, rank, bytes, true, where);
}

void mbarrier_expect_tx_at(void* barrier, int rank, uint32_t bytes, Location where) {
  arrive_at("mbarrier_expect_tx_at", barrier, rank, bytes, false, where);
}

void store_async(const char* what, void* place, const AsyncWord& word, void* barrier, int rank,
                 Location where) {
  Worker& worker = running_worker(what, where);
  Cluster& cluster = worker.cluster_around();
  require_shared(what, place, word.size, word.size, where);
  require_shared(what, barrier, sizeof(uint64_t), sizeof(uint64_t), where);
  cluster.require_peer(worker, what, rank, where);
  Worker& owner = cluster.block(rank);
  const std::size_t number = number_of_barrier(what, barrier, worker, owner, where);
  worker.tell(what, where);
  owner.tensor_copies.receive(what, worker.memory.same_place_in(owner.memory, place), word, number, owner,
                              worker, where);
}

void bulk_copy_to_rank(void* place, const void* source, uint32_t bytes, void* barrier, int rank,
                       Location where) {
  constexpr const char* what = "bulk_copy_to_rank";
  Worker& worker = running_worker(what, where);
  Cluster& cluster = worker.cluster_around();
  if (bytes == 0 || bytes % 16 != 0)
    throw Error(describe_call(what, where) + " moves " + std::to_string(bytes) +
                " bytes: give a multiple of 16 that is not 0");
  require_shared(what, place, bytes, 16, where);
  require_shared(what, source, bytes, 16, where);
  require_shared(what, barrier, sizeof(uint64_t), sizeof(uint64_t), where);
  cluster.require_peer(worker, what, rank, where);
  Worker& owner = cluster.block(rank);
  const std::size_t number = number_of_barrier(what, barrier, worker, owner, where);
  worker.tell(what, where);
  owner.tensor_copies.receive(what, worker.memory.same_place_in(owner.memory, place), source, bytes, number,
                              owner, worker, where);
}

}  // namespace flashbook::sim
