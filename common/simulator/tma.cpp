#include "common/simulator/tma.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/simulator/addresses.h"
#include "common/simulator/scheduler.h"
#include "common/simulator/tensor_copy.h"

namespace flashbook::sim {
namespace {

constexpr std::size_t kTileAlignment = 128;
constexpr int64_t kStartAlignment = 16;  // not in the PTX ISA, but an H200 stops at anything else

std::string text_of(const int* at, int rank) {
  std::string text;
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "{") + std::to_string(at[i]);
  return text + "}";
}

void require_map(const char* what, const CUtensorMap& map, Location where) {
  if (map.mark != kTensorMapMark)
    throw Error(describe_call(what, where) +
                ": that is no tensor map; device::tensor_map makes one, and the "
                "kernel takes it as const __grid_constant__ CUtensorMap");
}

/// Throws unless the copy keeps the rules that loads and stores share.
void require_copy(const char* what, const CUtensorMap& map, const void* tile, const int* at, int rank,
                  Location where) {
  require_map(what, map, where);
  if (rank != map.rank)
    throw Error(describe_call(what, where) + " gives " + std::to_string(rank) +
                " coordinates for a tensor map of " + std::to_string(map.rank) + " dimensions");
  const int64_t start = int64_t(at[0]) * map.element_bytes;
  if (start % kStartAlignment != 0)
    throw Error(describe_call(what, where) + " at " + text_of(at, rank) + " begins " + std::to_string(start) +
                " bytes into a row: an illegal instruction on an H200. Begin at a multiple of 16 bytes");
  require_shared(what, tile, box_bytes(map), kTileAlignment, where);
}

/// The memory must still be the tensor's. Elements outside the tensor are not touched.
void require_tensor(const char* what, const CUtensorMap& map, const BoxPlace& at, Location where) {
  const auto touched = touched_memory(map, at);
  require_global(what, touched.data(), touched.size(), 1, where);
}

BoxPlace place(const int* at, int rank) {
  BoxPlace box{};
  std::copy_n(at, rank, box.begin());
  return box;
}

/// A copy, as an observer is told of it.
struct Copy {
  const char* what;
  const CUtensorMap& map;
  const BoxPlace& at;
  const void* tile;
  Location where;
};

/// Returns the ticket. `in_shared` is what happens to the tile.
uint32_t tell_of_copy(Observer& observer, const void* object, int thread, Access in_shared,
                      const Copy& copy) {
  const uint32_t ticket = observer.begins_async(object);
  observer.touches_async(thread, object, ticket,
                         {in_shared, copy.tile, box_bytes(copy.map), copy.what, copy.where});
  const Access in_tensor = in_shared == Access::store ? Access::load : Access::store;
  for_each_touched_row(copy.map, copy.at, [&](const unsigned char* row, std::size_t bytes) {
    observer.streams({in_tensor, row, bytes, copy.what, copy.where});
  });
  return ticket;
}

}  // namespace

void Worker::load_tensor(void* tile, const CUtensorMap& map, const void* barrier_address, const int* at,
                         int rank, Location where) {
  constexpr const char* what = "tma_load";
  require_copy(what, map, tile, at, rank, where);
  const std::size_t number = mbarrier_at(what, barrier_address, where);
  const Mbarrier& barrier = mbarriers_[number];
  if (!barrier.fenced)
    throw Error(describe_call(what, where) + ": TMA before fence_mbarrier_init. It cannot know of " +
                describe(barrier) + " yet: thread " + std::to_string(barrier.initialiser) +
                ", which initialised it at " + to_string(barrier.where) +
                ", calls fence_mbarrier_init, then comes a __syncthreads");
  TensorLoad load{map,
                  static_cast<unsigned char*>(tile),
                  place(at, rank),
                  number,
                  barrier.phase,
                  number_of(*current_),
                  0,
                  where};
  require_tensor(what, map, load.at, where);
  const std::size_t bytes = box_bytes(map);
  for (const TensorLoad& other : loads_)
    if (other.tile < load.tile + bytes && load.tile < other.tile + box_bytes(other.map))
      throw Error(describe_call(what, where) + " writes a tile into which the tma_load at " +
                  to_string(other.where) + " by thread " + std::to_string(other.thread) +
                  " is still bringing data: wait for it, and for those who read it, before");
  if (observer_) {
    load.ticket = tell_of_copy(*observer_, barrier.address, load.thread, Access::store,
                               {what, map, load.at, tile, where});
  }
  const Async when = options().async;
  if (when == Async::eager || (when == Async::random && random_.below(4) == 0)) {
    land_load(load);
    return;
  }
  std::memset(tile, 0xff, bytes);  // on its way: whoever reads it now finds NaN
  loads_.push_back(load);
}

/// Finishes a load: the tile is there and the barrier knows.
void Worker::land_load(const TensorLoad& load) {
  Mbarrier& barrier = mbarriers_[load.barrier];
  if (barrier.phase != load.phase)
    throw Error("the bytes of " + describe_call("tma_load", load.where) + ", by thread " +
                std::to_string(load.thread) + ", belong to phase " + std::to_string(load.phase) + " of " +
                describe(barrier) +
                ", which was over before they landed: announce the bytes of all its loads "
                "with mbarrier_arrive_expect_tx");
  progress();
  load_box(load.map, load.at, load.tile);
  if (observer_) observer_->arrives_async(barrier.address, load.ticket);
  land_bytes("tma_load", barrier, box_bytes(load.map), load.where);
}

/// Finishes one load that is on its way, the oldest or any; false if there is none. Whatever is wrong with it
/// is not the fault of the thread that runs, so the block ends with that error.
bool Worker::land_one(bool any) {
  if (loads_.empty()) return false;
  const auto which = loads_.begin() + (any ? random_.below(int(loads_.size())) : 0);
  const TensorLoad load = *which;
  loads_.erase(which);
  try {
    land_load(load);
  } catch (const Error& broken_rule) {
    error_ = broken_rule.what() + ("\n  issued " + describe_current(threads_[std::size_t(load.thread)]));
  }
  return true;
}

void Worker::store_tensor(const void* tile, const CUtensorMap& map, const int* at, int rank, Location where) {
  constexpr const char* what = "tma_store";
  require_copy(what, map, tile, at, rank, where);
  if (std::any_of(at, at + rank, [](int coordinate) { return coordinate < 0; }))
    throw Error(describe_call(what, where) + " begins at " + text_of(at, rank) +
                ": a store with a negative coordinate is an illegal instruction on an H200; only loads may "
                "begin before the tensor");
  TensorStore store{.map = map,
                    .tile = static_cast<const unsigned char*>(tile),
                    .at = place(at, rank),
                    .group = current_->store_groups,
                    .where = where};
  require_tensor(what, map, store.at, where);
  if (observer_)
    store.ticket = tell_of_copy(*observer_, current_, number_of(*current_), Access::load,
                                {what, map, store.at, tile, where});
  const Async when = options().async;
  if (when == Async::eager || (when == Async::random && random_.below(2) == 0)) land_store(store);
  current_->stores.push_back(store);
}

/// Finishes a store: it has read its tile and written the tensor.
void Worker::land_store(TensorStore& store) {
  if (!store.landed) store_box(store.map, store.at, store.tile);
  store.landed = true;
}

void Worker::commit_stores() {
  ++current_->store_groups;
  if (options().async == Async::random)
    for (TensorStore& store : current_->stores)
      if (random_.below(4) == 0) land_store(store);
}

void Worker::wait_for_stores(int groups_in_flight) {
  const int first_in_flight = current_->store_groups - groups_in_flight;
  std::erase_if(current_->stores, [&](TensorStore& store) {
    const bool lands_now = store.group < first_in_flight;
    if (lands_now) land_store(store);
    if (lands_now && observer_) observer_->knows_async_done(number_of(*current_), current_, store.ticket);
    return lands_now;
  });
}

/// A thread may not leave a store behind: the block's shared memory goes with the block.
void Worker::require_stores_waited_for() const {
  if (current_->stores.empty()) return;
  const TensorStore& store = current_->stores.front();
  const bool committed = store.group < current_->store_groups;
  throw Error("the thread exits, and " + describe_call("tma_store", store.where) +
              " may still be reading shared memory" +
              (committed ? "" : ", since it was never committed: call tma_store_commit after it, and") +
              (committed ? ": call" : "") + " tma_store_wait_read<0> before the end");
}

void tma_load(void* tile, const CUtensorMap& map, void* barrier, const int* at, int rank, Location where) {
  running_worker("tma_load", where).load_tensor(tile, map, barrier, at, rank, where);
}

void tma_store(const void* tile, const CUtensorMap& map, const int* at, int rank, Location where) {
  running_worker("tma_store", where).store_tensor(tile, map, at, rank, where);
}

void tma_store_commit(Location where) { running_worker("tma_store_commit", where).commit_stores(); }

void tma_store_wait(const char* what, int groups_in_flight, Location where) {
  running_worker(what, where).wait_for_stores(groups_in_flight);
}

void tma_prefetch(const CUtensorMap& map, Location where) { require_map("tma_prefetch", map, where); }

}  // namespace flashbook::sim
