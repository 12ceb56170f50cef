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
constexpr int64_t kStartAlignment = 16;  // not in the PTX ISA, but an H200 stops at anything else

std::string text_of(const int* at, int rank) {
  std::string text;
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "{") + std::to_string(at[i]);
  return text + "}";
}

void require_map(const char* what, const CUtensorMap& map, Location where) {
  if (map.mark == MapMark::local)
    throw Error(
        describe_call(what, where) +
        ": the tensor map is a copy in the thread's local memory, where TMA cannot read it, an illegal "
        "address on a GPU. The kernel takes it as const __grid_constant__ CUtensorMap, and everybody "
        "else by reference");
  if (map.mark != MapMark::map)
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
  if (!is_allocated(map.base, map.element_bytes))
    throw Error(describe_call(what, where) +
                ": the base of the tensor map is not in an allocation of device memory. Launches with such "
                "maps were illegal addresses on an H200, wherever the boxes lay. A map that reaches back "
                "wraps around at 2^64 (chapters/09_masks/step2_varlen.cuh)");
  const auto touched = touched_memory(map, at);
  require_global(what, touched.data(), touched.size(), 1, where);
  if (!touched.empty() && !is_same_allocation(map.base, touched.data()))
    throw Error(describe_call(what, where) +
                ": the box lies in another allocation than the base of its tensor map, " +
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

/// A run of bytes as a tensor of one dimension that is one box. Throws unless the copy keeps the rules of
/// those without a map.
CUtensorMap bulk_map(const char* what, const void* shared, const void* global, uint32_t bytes,
                     Location where) {
  if (bytes == 0 || bytes % kBulkAlignment != 0)
    throw Error(describe_call(what, where) + " moves " + std::to_string(bytes) +
                " bytes: give a multiple of 16 that is not 0");
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

/// " of rank 1": of another block's thread.
std::string of_rank(int rank) { return rank < 0 ? "" : " of rank " + std::to_string(rank); }

template <typename T>
void combine_as(const AsyncWord& word, unsigned char* place) {
  T value, there;
  std::memcpy(&value, word.bytes.data(), sizeof(T));
  std::memcpy(&there, place, sizeof(T));
  switch (word.operation) {
    case RedOperation::add:
      there = T(std::make_unsigned_t<T>(there) + std::make_unsigned_t<T>(value));
      break;
    case RedOperation::min:
      there = std::min(there, value);
      break;
    case RedOperation::max:
      there = std::max(there, value);
      break;
    case RedOperation::bit_and:
      there &= value;
      break;
    case RedOperation::bit_or:
      there |= value;
      break;
    case RedOperation::bit_xor:
      there ^= value;
      break;
  }
  std::memcpy(place, &there, sizeof(T));
}

/// What becomes of the word that is there.
void combine(const AsyncWord& word, unsigned char* place) {
  if (!word.combines)
    std::memcpy(place, word.bytes.data(), word.size);
  else if (word.size == sizeof(uint64_t))
    combine_as<uint64_t>(word, place);
  else if (word.is_signed)
    combine_as<int32_t>(word, place);
  else
    combine_as<uint32_t>(word, place);
}

/// A copy, as an observer is told of it.
struct Copy {
  const char* what;
  const CUtensorMap& map;
  const BoxPlace& at;
  const void* tile;
  Location where;
};

/// "shared + 1024 (16384 bytes)": a tile, by which events know it.
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
  words_.clear();
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
    throw Error(describe_call(what, where) + ": TMA before fence_mbarrier_init. It cannot know of " +
                describe(barrier) + " yet: thread " + std::to_string(barrier.initialiser) +
                ", which initialised it at " + to_string(barrier.where) +
                ", calls fence_mbarrier_init, then comes a __syncthreads");
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
  add_load(load);
}

/// No other load is bringing data to the same place.
void TensorCopies::require_free(const Load& load) const {
  for (const Load& other : loads_)
    if (other.tile < load.tile + load.bytes && load.tile < other.tile + other.bytes)
      throw Error(describe_call(load.what, load.where) + " writes a tile into which the " + other.what +
                  " at " + to_string(other.where) + " by thread " + std::to_string(other.thread) +
                  of_rank(other.rank) +
                  " is still bringing data: wait for it, and for those who read it, before");
}

void TensorCopies::add_load(const Load& load) {
  const Async when = options().async;
  if (when == Async::eager || (when == Async::random && scheduler_.random().below(4) == 0)) {
    land(load);
    return;
  }
  std::memset(load.tile, 0xff, load.bytes);  // on its way: whoever reads it now finds NaN
  loads_.push_back(load);
}

void TensorCopies::load_for(const char* what, void* tile, const CUtensorMap& map, std::size_t number,
                            const BoxPlace& at, const Worker& owner, const Worker& peer, Location where) {
  const AsBlock as(*peer.cluster(), owner.rank());
  Load load{.what = what,
            .map = map,
            .tile = static_cast<unsigned char*>(tile),
            .at = at,
            .barrier = number,
            .phase = mbarriers_[number].phase,
            .thread = peer.current_number(),
            .ticket = 0,
            .where = where,
            .bytes = box_bytes(map),
            .rank = peer.rank()};
  require_free(load);
  std::erase_if(tiles_, [&](const Tile& other) {
    return other.begin < load.tile + load.bytes && load.tile < other.begin + box_bytes(other.map);
  });
  if (map.rank > 1) tiles_.push_back({what, map, load.tile, load.at, where});
  load.ticket = tell_of_peer(peer, number, tile, load.bytes, Access::store, what, where);
  add_load(load);
}

void TensorCopies::receive(const char* what, void* place, const void* source, std::size_t bytes,
                           std::size_t number, const Worker& owner, const Worker& peer, Location where) {
  const AsBlock as(*peer.cluster(), owner.rank());
  Load load{.what = what,
            .map = {},
            .tile = static_cast<unsigned char*>(place),
            .at = {},
            .barrier = number,
            .phase = mbarriers_[number].phase,
            .thread = peer.current_number(),
            .ticket = 0,
            .where = where,
            .bytes = bytes,
            .rank = peer.rank(),
            .source = static_cast<const unsigned char*>(source)};
  require_free(load);
  load.ticket = tell_of_peer(peer, number, place, bytes, Access::store, what, where);
  if (scheduler_.observer())
    peer.observer()->read_for_peer(peer.current_number(), *scheduler_.observer(), mbarriers_[number].address,
                                   load.ticket, {Access::load, source, bytes, what, where});
  add_load(load);
}

void TensorCopies::receive(const char* what, void* place, const AsyncWord& value, std::size_t number,
                           const Worker& owner, const Worker& peer, Location where) {
  const AsBlock as(*peer.cluster(), owner.rank());
  Word word{what,
            value,
            static_cast<unsigned char*>(place),
            number,
            mbarriers_[number].phase,
            peer.current_number(),
            peer.rank(),
            0,
            where};
  word.ticket = tell_of_peer(peer, number, place, value.size, value.combines ? Access::atomic : Access::store,
                             what, where);
  const Async when = options().async;
  if (when == Async::eager || (when == Async::random && scheduler_.random().below(4) == 0)) {
    land(word);
    return;
  }
  if (!value.combines) std::memset(place, 0xff, value.size);
  words_.push_back(word);
}

/// Tells the observers that the async proxy works here for the current thread of another block. Returns the
/// ticket.
uint32_t TensorCopies::tell_of_peer(const Worker& peer, std::size_t number, const void* place,
                                    std::size_t bytes, Access access, const char* what, Location where) {
  Observer* const observer = scheduler_.observer();
  if (!observer) return 0;
  const void* const barrier = mbarriers_[number].address;
  const uint32_t ticket = observer->begins_async(barrier);
  observer->touched_by_peer(*peer.observer(), peer.current_number(), barrier, ticket,
                            {access, place, bytes, what, where});
  return ticket;
}

/// Finishes a load: the tile is there and the barrier knows.
void TensorCopies::land(const Load& load) {
  require_phase(load);
  if (load.source) {
    const Cluster& cluster = *current_worker->cluster();
    if (cluster.has_ended(load.rank))
      throw Error(describe_call(load.what, load.where) + " by thread " + std::to_string(load.thread) +
                  " still reads the shared memory of " + cluster.describe_block(load.rank) +
                  ", which has exited: that block waits, at a cluster_sync at the end, until the other one "
                  "has waited for the bytes");
    std::memcpy(load.tile, load.source, load.bytes);
  } else {
    load_box(load.map, load.at, load.tile);
  }
  arrive_with(load, load.tile, load.bytes);
}

/// Finishes a store or a sum of another block.
void TensorCopies::land(const Word& word) {
  require_phase(word);
  combine(word.word, word.place);
  arrive_with(word, word.place, word.word.size);
}

template <typename Landed>
void TensorCopies::require_phase(const Landed& landed) const {
  const Mbarrier& barrier = mbarriers_[landed.barrier];
  if (barrier.phase != landed.phase)
    throw Error("the bytes of " + describe_call(landed.what, landed.where) + ", by thread " +
                std::to_string(landed.thread) + of_rank(landed.rank) + ", belong to phase " +
                std::to_string(landed.phase) + " of " + describe(barrier) +
                ", which was over before they landed: announce the bytes of all its loads "
                "with mbarrier_arrive_expect_tx");
}

/// The bytes are at a place in shared memory, and the barrier counts them.
template <typename Landed>
void TensorCopies::arrive_with(const Landed& landed, const void* place, std::size_t bytes) {
  const Mbarrier& barrier = mbarriers_[landed.barrier];
  scheduler_.progress();
  if (Observer* observer = scheduler_.observer()) observer->arrives_async(barrier.address, landed.ticket);
  if (EventLog* log = scheduler_.log())
    log->add_warps(
        landed.rank < 0 ? landed.thread / kWarpLanes : -1, 1,
        {EventKind::lands, landed.what, landed.where, name_of_tile(place, bytes), "at " + describe(barrier)},
        false);
  mbarriers_.land_bytes(landed.barrier, bytes, {0, landed.thread, landed.what, landed.where, landed.rank});
}

bool TensorCopies::land_one(bool any) {
  if (!any_load()) return false;
  if (words_.empty()) return land_first(loads_, any);
  if (loads_.empty()) return land_first(words_, any);
  return any && scheduler_.random().below(2) == 0 ? land_first(loads_, any) : land_first(words_, any);
}

template <typename Landed>
bool TensorCopies::land_first(Landed& waiting, bool any) {
  const auto which = waiting.begin() + (any ? scheduler_.random().below(int(waiting.size())) : 0);
  const auto landed = *which;
  waiting.erase(which);
  try {
    land(landed);
  } catch (const Error& broken_rule) {
    scheduler_.fail(broken_rule.what() + issued(landed.thread, landed.rank));
  }
  return true;
}

/// "\n  issued in block (0,0,0), thread (0,0,0), warp 0, lane 0", or of which rank.
std::string TensorCopies::issued(int thread, int rank) const {
  if (rank >= 0) return "\n  issued by thread " + std::to_string(thread) + of_rank(rank);
  return "\n  issued " + describe_current(scheduler_.threads()[std::size_t(thread)]);
}

std::string TensorCopies::other_swizzle(const unsigned char* address, uint32_t span) {
  const auto tile = std::find_if(tiles_.begin(), tiles_.end(), [&](const Tile& tile) {
    return std::uintptr_t(address) - std::uintptr_t(tile.begin) < box_bytes(tile.map);
  });
  if (tile == tiles_.end() || tile->map.swizzle_bytes == span) return "";
  CUtensorMap other = tile->map;
  other.swizzle_bytes = uint8_t(span);
  const std::vector<unsigned char> rows = read_tile(tile->map, tile->begin);
  if (rows == read_tile(other, tile->begin)) return "";  // zeros, for example
  if (rows != rows_of(tile->map, tile->at)) {
    tiles_.erase(tile);  // threads have made another of it
    return "";
  }
  return "the tile there was brought by " + describe_call(tile->what, tile->where) + " through a map with " +
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

/// Finishes a store: it has read its tile and written the tensor.
void TensorCopies::land(Store& store) {
  if (store.landed) return;
  read(store);
  (store.adds ? add_rows : store_rows)(store.map, store.at, store.rows.data());
  store.landed = true;
}

/// Finishes these, in any order: sums of float32 show which.
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

// The block's shared memory goes with the block.
void TensorCopies::require_stores_read() {
  const auto store = std::find_if(mine().stores.begin(), mine().stores.end(),
                                  [](const Store& store) { return !store.waited; });
  if (store == mine().stores.end()) return;
  const bool committed = is_awaited(*store, 0);
  throw Error("the thread exits, and " + describe_call(store->what, store->where) +
              " may still be reading shared memory" +
              (committed ? "" : ", since it was never committed: call tma_store_commit after it, and") +
              (committed ? ": call" : "") + " tma_store_wait_read<0> before the end");
}

std::string TensorCopies::end_error() const {
  const auto report = [&](const auto& load) {
    return "block " + triple(blockIdx) + " ends while " + describe_call(load.what, load.where) +
           " is in flight to " + describe(mbarriers_[load.barrier]) +
           ": its shared memory goes to another block. Someone must wait for every load" +
           issued(load.thread, load.rank);
  };
  return !loads_.empty() ? report(loads_.front()) : !words_.empty() ? report(words_.front()) : "";
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

namespace {

/// Calls `load(rank)` for each block that a multicast names.
template <typename LoadTo>
void for_each_target(const char* what, Worker& worker, uint32_t blocks, Location where, const LoadTo& load) {
  const Cluster* cluster = &worker.cluster_around();
  if (blocks == 0)
    throw Error(describe_call(what, where) + " names no block: bit 1 << rank for each that gets the data");
  if (blocks >> cluster->size() != 0)
    throw Error(describe_call(what, where) + " names blocks " + describe_mask(blocks) + ", and rank " +
                std::to_string(31 - __builtin_clz(blocks)) + " is none of the cluster's, which has " +
                std::to_string(cluster->size()) + " blocks: set bits 0 to " +
                std::to_string(cluster->size() - 1) + " only");
  for (int rank = 0; rank < cluster->size(); ++rank)
    if (blocks >> rank & 1) cluster->require_peer(worker, what, rank, where);
  for (int rank = 0; rank < cluster->size(); ++rank)
    if (blocks >> rank & 1) load(rank);
}

void load_multicast(const char* what, void* tile, const CUtensorMap& map, void* barrier, const BoxPlace& at,
                    uint32_t blocks, Location where) {
  Worker& worker = running_worker(what, where);
  require_shared(what, barrier, sizeof(uint64_t), sizeof(uint64_t), where);
  require_tensor(what, map, at, where);
  for_each_target(what, worker, blocks, where, [&](int rank) {
    if (rank == worker.rank()) return worker.tensor_copies.load(what, tile, map, barrier, at, where);
    Worker& owner = worker.cluster()->block(rank);
    const std::size_t number = owner.mbarriers.number_for_peer(
        what, worker.memory.same_place_in(owner.memory, barrier), owner, worker, where);
    owner.tensor_copies.load_for(what, worker.memory.same_place_in(owner.memory, tile), map, number, at,
                                 owner, worker, where);
  });
  worker.tell(what, where);
}

}  // namespace

void tma_load_multicast(void* tile, const CUtensorMap& map, void* barrier, const int* at, int rank,
                        uint32_t blocks, Location where) {
  constexpr const char* what = "tma_load_multicast";
  require_copy(what, map, tile, at, rank, where);
  load_multicast(what, tile, map, barrier, place(at, rank), blocks, where);
}

void bulk_load_multicast(void* shared, const void* global, uint32_t bytes, void* barrier, uint32_t blocks,
                         Location where) {
  constexpr const char* what = "bulk_load_multicast";
  load_multicast(what, shared, bulk_map(what, shared, global, bytes, where), barrier, {}, blocks, where);
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
