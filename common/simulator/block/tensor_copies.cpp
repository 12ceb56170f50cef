#include "common/simulator/block/tensor_copies.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/language.h"
#include "common/simulator/launch.h"
#include "common/simulator/memory.h"
#include "common/simulator/tma.h"

namespace flashbook::sim {
namespace {

constexpr std::size_t kTileAlignment = 128;
constexpr std::size_t kBulkAlignment = 16;
constexpr int64_t kStartAlignment = 16;  // not in the PTX ISA, but an H200 stops otherwise

std::string text_of(const int* at, int rank) {
  std::string text;
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "{") + std::to_string(at[i]);
  return text + "}";
}

void require_map(const char* what, const CUtensorMap& map, Location where) {
  if (map.mark == MapMark::local)
    throw Error(describe_call(what, where) +
                ": the tensor map is a copy in the thread's local memory, where TMA cannot read it: an "
                "illegal address on a GPU. Pass it to the kernel as const __grid_constant__ CUtensorMap, and "
                "to all other functions by reference");
  if (map.mark == MapMark::written)
    throw Error(
        describe_call(what, where) + ": a kernel has written the tensor map at " +
        running_worker(what, where).memory.describe(&map) +
        ". The simulator does not support that: it has no tensormap.replace, and no fence.proxy.tensormap, "
        "without which TMA may read the old map. Create all maps on the host, and let the kernel choose one");
  if (map.mark != MapMark::map)
    throw Error(describe_call(what, where) +
                ": this is not a tensor map: create one with device::tensor_map, and pass it to the kernel "
                "as const __grid_constant__ CUtensorMap");
}

/// Throws unless the copy follows the rules common to loads and stores.
void require_copy(const char* what, const CUtensorMap& map, const void* tile, const int* at, int rank,
                  Location where) {
  require_map(what, map, where);
  if (rank != map.rank)
    throw Error(describe_call(what, where) + " gives " + std::to_string(rank) +
                " coordinates for a tensor map with " + std::to_string(map.rank) + " dimensions");
  const int64_t start = int64_t(at[0]) * map.element_bytes;
  if (start % kStartAlignment != 0)
    throw Error(describe_call(what, where) + " at " + text_of(at, rank) + " begins " + std::to_string(start) +
                " bytes into a row: an illegal instruction on an H200. Begin at a multiple of 16 bytes");
  require_shared(what, tile, box_bytes(map), kTileAlignment, where);
}

/// Throws unless the tensor's memory is still allocated; elements outside the tensor are not accessed.
void require_tensor(const char* what, const CUtensorMap& map, const BoxPlace& at, Location where) {
  if (!is_allocated(map.base, map.element_bytes))
    throw Error(
        describe_call(what, where) +
        ": the base of the tensor map is not in an allocation of device memory, " +
        describe_global(map.base) +
        ". On an H200, launches with such maps failed with an illegal address, wherever the boxes were. A "
        "map with negative offsets wraps around at 2^64 (chapters/09_masks/step2_varlen.cuh)");
  const auto touched = touched_memory(map, at);
  require_global(what, touched.data(), touched.size(), 1, where);
  if (!touched.empty() && !is_same_allocation(map.base, touched.data()))
    throw Error(describe_call(what, where) +
                ": the box is in a different allocation from the base of its tensor map, " +
                describe_global(touched.data()) +
                ": check the map's sizes and strides, and the page or coordinate");
}

void require_store(const char* what, const CUtensorMap& map, const void* tile, const int* at, int rank,
                   Location where) {
  require_copy(what, map, tile, at, rank, where);
  if (std::any_of(at, at + rank, [](int coordinate) { return coordinate < 0; }))
    throw Error(describe_call(what, where) + " begins at " + text_of(at, rank) +
                ": a store with a negative coordinate is an illegal instruction on an H200; only loads may "
                "begin before the tensor");
}

/// Treats a contiguous range of bytes as a one-dimensional tensor with a single box. Throws unless the copy
/// follows the rules for copies without a tensor map.
CUtensorMap bulk_map(const char* what, const void* shared, const void* global, uint32_t bytes,
                     Location where) {
  if (bytes == 0 || bytes % kBulkAlignment != 0)
    throw Error(describe_call(what, where) + " moves " + std::to_string(bytes) +
                " bytes: give a positive multiple of 16");
  require_shared(what, shared, bytes, kBulkAlignment, where);
  require_global(what, global, bytes, kBulkAlignment, where);
  constexpr uint16_t kElement = sizeof(float);
  CUtensorMap map{};
  map.mark = MapMark::map;
  map.element_bytes = kElement;
  map.rank = 1;
  map.swizzle_bytes = kBulkAlignment;
  map.base = static_cast<unsigned char*>(const_cast<void*>(global));
  map.size[0] = bytes / kElement;
  map.stride[0] = kElement;
  map.box[0] = uint16_t(bytes / kElement);
  return map;
}

BoxPlace place(const int* at, int rank) {
  BoxPlace box{};
  std::copy_n(at, rank, box.begin());
  return box;
}

/// A copy, in the form in which it is reported to an observer.
struct Copy {
  const char* what;
  const CUtensorMap& map;
  const BoxPlace& at;
  const void* tile;
  Location where;
};

/// Returns the name of a tile in events, such as "shared + 1024 (16384 bytes)".
std::string name_of_tile(const void* tile, std::size_t bytes) {
  const auto offset = static_cast<const unsigned char*>(tile) - current_worker->memory.dynamic().data();
  return "shared + " + std::to_string(offset) + " (" + std::to_string(bytes) + " bytes)";
}

void tell_of_tile(Observer& observer, const void* object, uint32_t ticket, int thread, Access access,
                  const Copy& copy) {
  observer.touches_async(thread, object, ticket,
                         {access, copy.tile, box_bytes(copy.map), copy.what, copy.where});
}

void tell_of_tensor(Observer& observer, const void* object, uint32_t ticket, int thread, Access access,
                    const Copy& copy) {
  for_each_touched_row(copy.map, copy.at, [&](const unsigned char* row, std::size_t bytes) {
    observer.streams(thread, object, ticket, {access, row, bytes, copy.what, copy.where});
  });
}

}  // namespace

void TensorCopies::begin_block() {
  loads_.clear();
  tiles_.clear();
  threads_.resize(scheduler_.threads().size());
  for (OfThread& thread : threads_) {
    thread.stores.clear();
    thread.groups = 0;
  }
}

void TensorCopies::load(const char* what, void* tile, const CUtensorMap& map, const void* barrier_address,
                        const BoxPlace& at, Location where) {
  const std::size_t number = mbarriers_.number_at(what, barrier_address, where);
  const Mbarrier& barrier = mbarriers_[number];
  if (!barrier.fenced)
    throw Error(describe_call(what, where) + ": TMA before fence_mbarrier_init. It does not see " +
                describe(barrier) + " yet: thread " + std::to_string(barrier.initialiser) +
                ", which initialised it at " + to_string(barrier.where) +
                ", must call fence_mbarrier_init, followed by a __syncthreads");
  Load load{what,   map,           static_cast<unsigned char*>(tile), at,
            number, barrier.phase, scheduler_.current().number,       0,
            where,  box_bytes(map)};
  require_tensor(what, map, load.at, where);
  const std::size_t bytes = load.bytes;
  require_free(load);
  std::erase_if(tiles_, [&](const Tile& other) {
    return other.begin < load.tile + bytes && load.tile < other.begin + box_bytes(other.map);
  });
  if (map.rank > 1) tiles_.push_back({what, map, load.tile, load.at, where});
  if (Observer* observer = scheduler_.observer()) {
    load.ticket = observer->begins_async(barrier.address);
    const Copy copy{what, map, load.at, tile, where};
    tell_of_tile(*observer, barrier.address, load.ticket, load.thread, Access::store, copy);
    tell_of_tensor(*observer, barrier.address, load.ticket, load.thread, Access::load, copy);
  }
  if (EventLog* log = scheduler_.log())
    log->add(load.thread, {EventKind::copies, what, where, name_of_tile(tile, bytes),
                           "from " + text_of(at.data(), map.rank) + ", arrives at " + describe(barrier)});
  const Async when = options().async;
  if (when == Async::eager || (when == Async::random && scheduler_.random().below(4) == 0)) {
    land(load);
    return;
  }
  std::memset(load.tile, 0xff, load.bytes);  // the load is in flight: reading its tile now yields NaN
  loads_.push_back(load);
}

/// Throws if another load to the same place is still in flight.
void TensorCopies::require_free(const Load& load) const {
  for (const Load& other : loads_)
    if (other.tile < load.tile + load.bytes && load.tile < other.tile + other.bytes)
      throw Error(describe_call(load.what, load.where) + " writes to a tile that the " + other.what + " at " +
                  to_string(other.where) + " by thread " + std::to_string(other.thread) +
                  " is still filling: first wait for that copy, and for the threads that read the tile");
}

/// Completes a load: writes the tile and updates the barrier.
void TensorCopies::land(const Load& load) {
  const Mbarrier& barrier = mbarriers_[load.barrier];
  if (barrier.phase != load.phase)
    throw Error("the bytes of " + describe_call(load.what, load.where) + ", by thread " +
                std::to_string(load.thread) + ", belong to phase " + std::to_string(load.phase) + " of " +
                describe(barrier) +
                ", which completed before they landed: announce the bytes of all its loads "
                "with mbarrier_arrive_expect_tx");
  load_box(load.map, load.at, load.tile);
  scheduler_.progress();
  if (Observer* observer = scheduler_.observer()) observer->arrives_async(barrier.address, load.ticket);
  if (EventLog* log = scheduler_.log())
    log->add_warps(load.thread / kWarpLanes, 1,
                   {EventKind::lands, load.what, load.where, name_of_tile(load.tile, load.bytes),
                    "at " + describe(barrier)},
                   false);
  mbarriers_.land_bytes(load.barrier, load.bytes, {0, load.thread, load.what, load.where});
}

bool TensorCopies::land_one(bool any) {
  if (loads_.empty()) return false;
  const auto which = loads_.begin() + (any ? scheduler_.random().below(int(loads_.size())) : 0);
  const Load landed = *which;
  loads_.erase(which);
  try {
    land(landed);
  } catch (const Error& broken_rule) {
    scheduler_.fail(broken_rule.what() + issued(landed));
  }
  return true;
}

/// Returns a line such as "\n  issued in block (0,0,0), thread (0,0,0), warp 0, lane 0".
std::string TensorCopies::issued(const Load& load) const {
  return "\n  issued " + describe_current(scheduler_.threads()[std::size_t(load.thread)]);
}

std::string TensorCopies::other_swizzle(const unsigned char* address, uint32_t span) {
  const auto tile = std::find_if(tiles_.begin(), tiles_.end(), [&](const Tile& tile) {
    return std::uintptr_t(address) - std::uintptr_t(tile.begin) < box_bytes(tile.map);
  });
  if (tile == tiles_.end() || tile->map.swizzle_bytes == span) return "";
  CUtensorMap other = tile->map;
  other.swizzle_bytes = uint8_t(span);
  const std::vector<unsigned char> rows = read_tile(tile->map, tile->begin);
  if (rows == read_tile(other, tile->begin)) return "";  // e.g. if all rows are zero
  if (rows != rows_of(tile->map, tile->at)) {
    tiles_.erase(tile);  // threads have changed the tile
    return "";
  }
  return "the tile there was loaded by " + describe_call(tile->what, tile->where) + " through a map with " +
         name_of_swizzle(tile->map.swizzle_bytes);
}

void TensorCopies::store(const char* what, const void* tile, const CUtensorMap& map, const BoxPlace& at,
                         bool adds, Location where) {
  Store store{.what = what,
              .adds = adds,
              .map = map,
              .tile = static_cast<const unsigned char*>(tile),
              .at = at,
              .group = mine().groups,
              .where = where};
  require_tensor(what, map, store.at, where);
  if (Observer* observer = scheduler_.observer()) {
    const int self = scheduler_.current().number;
    const Copy copy{what, map, store.at, tile, where};
    store.read_ticket = observer->begins_async(mine().reading());
    tell_of_tile(*observer, mine().reading(), store.read_ticket, self, Access::load, copy);
    store.write_ticket = observer->begins_async(mine().writing());
    tell_of_tensor(*observer, mine().writing(), store.write_ticket, self,
                   adds ? Access::atomic : Access::store, copy);
  }
  const Async when = options().async;
  if (EventLog* log = scheduler_.log())
    log->add(scheduler_.current().number,
             {EventKind::copies, what, where, name_of_tile(tile, box_bytes(map)),
              (adds ? "is added at " : "goes to ") + text_of(at.data(), map.rank)});
  if (when == Async::eager || (when == Async::random && scheduler_.random().below(2) == 0)) land(store);
  mine().stores.push_back(std::move(store));
}

void TensorCopies::read(Store& store) {
  if (store.rows.empty()) store.rows = read_tile(store.map, store.tile);
}

/// Completes a store: reads its tile and writes the tensor.
void TensorCopies::land(Store& store) {
  if (store.landed) return;
  read(store);
  (store.adds ? add_rows : store_rows)(store.map, store.at, store.rows.data());
  store.landed = true;
}

/// Completes these stores in random order, which affects the rounding of sums in float32.
void TensorCopies::land(std::vector<Store*> stores) {
  if (options().seed != 0 || options().async == Async::random)
    for (std::size_t left = stores.size(); left > 1; --left)
      std::swap(stores[left - 1], stores[std::size_t(scheduler_.random().below(int(left)))]);
  for (Store* store : stores) land(*store);
}

void TensorCopies::commit_stores() {
  ++mine().groups;
  if (options().async != Async::random) return;
  std::vector<Store*> landing;
  for (Store& store : mine().stores)
    if (scheduler_.random().below(4) == 0) landing.push_back(&store);
  land(std::move(landing));
}

void TensorCopies::wait_for_stores(int groups_in_flight) {
  wait_for_reads_of_stores(groups_in_flight);
  std::vector<Store*> landing;
  for (Store& store : mine().stores)
    if (is_awaited(store, groups_in_flight)) landing.push_back(&store);
  land(landing);
  if (Observer* observer = scheduler_.observer())
    for (const Store* store : landing)
      observer->knows_async_done(scheduler_.current().number, mine().writing(), store->write_ticket);
  std::erase_if(mine().stores, [&](const Store& store) { return is_awaited(store, groups_in_flight); });
}

void TensorCopies::wait_for_reads_of_stores(int groups_in_flight) {
  for (Store& store : mine().stores) {
    if (store.waited || !is_awaited(store, groups_in_flight)) continue;
    store.waited = true;
    read(store);
    if (Observer* observer = scheduler_.observer())
      observer->knows_async_done(scheduler_.current().number, mine().reading(), store.read_ticket);
  }
}

void TensorCopies::end_block() {
  std::vector<Store*> landing;
  for (OfThread& thread : threads_)
    for (Store& store : thread.stores) landing.push_back(&store);
  land(std::move(landing));
}

// A block's shared memory is freed when the block ends.
void TensorCopies::require_stores_read() {
  const auto store = std::find_if(mine().stores.begin(), mine().stores.end(),
                                  [](const Store& store) { return !store.waited; });
  if (store == mine().stores.end()) return;
  const bool committed = is_awaited(*store, 0);
  throw Error("the thread exits while " + describe_call(store->what, store->where) +
              " may still be reading shared memory" +
              (committed ? "" : ", since it was never committed: call tma_store_commit after it, and") +
              (committed ? ": call" : "") + " tma_store_wait_read<0> before the end");
}

std::string TensorCopies::end_error() const {
  if (loads_.empty()) return "";
  const Load& load = loads_.front();
  return "block " + triple(blockIdx) + " ends while " + describe_call(load.what, load.where) +
         " is in flight to " + describe(mbarriers_[load.barrier]) +
         ", and the next block reuses this shared memory: each load must be waited for by some thread" +
         issued(load);
}

void tma_load(void* tile, const CUtensorMap& map, void* barrier, const int* at, int rank, Location where) {
  require_copy("tma_load", map, tile, at, rank, where);
  running_worker("tma_load", where)
      .tensor_copies.load("tma_load", tile, map, barrier, place(at, rank), where);
}

void tma_store(const void* tile, const CUtensorMap& map, const int* at, int rank, Location where) {
  require_store("tma_store", map, tile, at, rank, where);
  running_worker("tma_store", where)
      .tensor_copies.store("tma_store", tile, map, place(at, rank), false, where);
}

void tma_reduce_add(const void* tile, const CUtensorMap& map, const int* at, int rank, Location where) {
  constexpr const char* what = "tma_reduce_add";
  require_store(what, map, tile, at, rank, where);
  if (map.element_bytes != sizeof(float))
    throw Error(describe_call(what, where) + " adds float32: the map's elements have " +
                std::to_string(map.element_bytes) + " bytes");
  running_worker(what, where).tensor_copies.store(what, tile, map, place(at, rank), true, where);
}

void bulk_load(void* shared, const void* global, uint32_t bytes, void* barrier, Location where) {
  constexpr const char* what = "bulk_load";
  running_worker(what, where)
      .tensor_copies.load(what, shared, bulk_map(what, shared, global, bytes, where), barrier, {}, where);
}

void bulk_store(void* global, const void* shared, uint32_t bytes, Location where) {
  constexpr const char* what = "bulk_store";
  running_worker(what, where)
      .tensor_copies.store(what, shared, bulk_map(what, shared, global, bytes, where), {}, false, where);
}

void bulk_reduce_add(float* global, const float* shared, uint32_t bytes, Location where) {
  constexpr const char* what = "bulk_reduce_add";
  running_worker(what, where)
      .tensor_copies.store(what, shared, bulk_map(what, shared, global, bytes, where), {}, true, where);
}

void tma_store_commit(Location where) {
  Worker& worker = running_worker("tma_store_commit", where);
  worker.tell("tma_store_commit", where);
  worker.tensor_copies.commit_stores();
}

void tma_store_wait(int groups_in_flight, Location where) {
  Worker& worker = running_worker("tma_store_wait", where);
  worker.tell("tma_store_wait", where, groups_in_flight);
  worker.tensor_copies.wait_for_stores(groups_in_flight);
}

void tma_store_wait_read(int groups_in_flight, Location where) {
  Worker& worker = running_worker("tma_store_wait_read", where);
  worker.tell("tma_store_wait_read", where, groups_in_flight);
  worker.tensor_copies.wait_for_reads_of_stores(groups_in_flight);
}

void tma_prefetch(const CUtensorMap& map, Location where) { require_map("tma_prefetch", map, where); }

}  // namespace flashbook::sim
