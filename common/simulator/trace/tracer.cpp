#include "common/simulator/trace/tracer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "common/simulator/block/static_shared.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/source_lines.h"

// The linker places the program's variables between these symbols.
extern "C" {
extern char __executable_start[], __data_start[], _end[];
}

namespace flashbook::sim {
namespace {

/// The maximum number of bytes per lane in one instruction. An access by the compiler's code may be larger.
constexpr std::size_t kWidest = 16;

const char* noun(Access access) {
  return !writes(access) ? "load" : access == Access::store ? "store" : "atomic operation";
}

[[noreturn]] void stop(Access access, std::size_t bytes, Site site, const std::string& problem) {
  current_worker->scheduler.abandon(noun(access) + (" of " + std::to_string(bytes)) + " bytes at " +
                                    line_of(site).described() + ": " + problem);
}

constexpr const char* kSharedIsOwn =
    ". On a GPU the same address refers to each block's own shared memory: pass the value itself through "
    "device memory, not a pointer to it";

[[noreturn]] void out_of_bounds(Access access, const void* address, std::size_t bytes, Site site) {
  stop(access, bytes, site,
       "out of bounds, " + current_worker->memory.describe(address) +
           (is_global(address) ? " is not in an allocation of device memory" : " is not the block's") +
           "; check that no index exceeds the last row, column or stage");
}

/// Returns whether code belongs to the kernel or one of its helpers, as opposed to the simulator, of which a
/// traced file may contain a copy.
bool is_of_kernel(Site site) {
  static thread_local std::map<Site, bool> known;
  const auto [entry, is_new] = known.try_emplace(site);
  if (is_new) entry->second = !source_lines({&site, 1}).at(site).is_unknown();
  return entry->second;
}

bool is_mapped(std::uintptr_t address) {
  unsigned char resident;
  const auto page = std::uintptr_t(sysconf(_SC_PAGESIZE));
  return mincore(reinterpret_cast<void*>(address / page * page), 1, &resident) == 0;
}

[[noreturn]] void misaligned(Access access, const void* address, std::size_t bytes, Site site) {
  stop(access, bytes, site,
       "misaligned address, " + current_worker->memory.describe(address) + " is not a multiple of " +
           std::to_string(bytes));
}

}  // namespace

thread_local constinit Tracer* current_tracer = nullptr;

SourceLine line_of(Site site) {
  return source_lines({&site, 1}, current_tracer ? current_grid().launch.kernel : nullptr).at(site);
}

GridTrace::GridTrace(const Launch& launch, const std::shared_ptr<GridTrace>& before)
    : launch(launch),
      memory(std::uintptr_t(global_memory_in_use().data()),
             std::uintptr_t(global_memory_in_use().data() + global_memory_in_use().size())),
      variables(std::uintptr_t(__data_start) / kSectorBytes * kSectorBytes, std::uintptr_t(_end)) {
  constexpr std::size_t kMaxEarlier = 4;  // number of launches whose memory is kept
  if (!before) return;
  earlier.push_back({before, 1, true});
  for (const Earlier& one : before->earlier) {
    const bool ends = before->has_waited && one.ends_before_wait;
    if ((!ends || before->lets_go_early) && earlier.size() < kMaxEarlier)
      earlier.push_back({one.launch, one.distance + 1, ends});
  }
  before->earlier.clear();
}

void Tracer::block_begins(const Block& block) {
  grid_ = &current_grid();
  known_reads_ = grid_->earlier.empty() ? &grid_->memory : nullptr;
  scheduler_ = &current_worker->scheduler;
  block_ = block;
  barriers_ = 0;
  has_faults_ = acquires_past_ = false;
  static_shared_.assign(block.static_shared.begin(), block.static_shared.end());
  std::sort(static_shared_.begin(), static_shared_.end(),
            [](const auto& a, const auto& b) { return a.data() < b.data(); });
  global_begin_ = global_memory_begin();
  variables_begin_ = std::uintptr_t(__data_start);
  variables_bytes_ = std::uintptr_t(_end) - variables_begin_;
  const std::span<const unsigned char> own = own_thread_local_memory();
  own_begin_ = std::uintptr_t(own.data());
  own_bytes_ = own.size();
  kernel_begin_ = std::uintptr_t(grid_->launch.kernel);
  kernel_bytes_ = own.empty() ? 0 : function_of(offset_in_program(grid_->launch.kernel)).bytes;
  const auto stacks = current_worker->scheduler.stacks();
  stacks_begin_ = std::uintptr_t(stacks.data());
  stacks_bytes_ = stacks.size();
  dynamic_begin_ = std::uintptr_t(block.dynamic_shared);
  recent_ = other_ = {dynamic_begin_, block.dynamic_shared_bytes, 0};
  static_begin_ = static_end_ = 0;
  if (!static_shared_.empty()) {
    static_begin_ = std::uintptr_t(static_shared_.front().data());
    static_end_ = std::uintptr_t(static_shared_.back().data()) + static_shared_.back().size();
  }
  const std::size_t shared_bytes = kMaxSharedBytes + (static_end_ - static_begin_);
  if (!races_ || races_->bytes() < shared_bytes) races_ = std::make_unique<SharedRaces>(shared_bytes);
  races_->begin();
  clocks_.begin(block.threads);
  order_.begin(block.number, grid_->published);
  written_down_.clear();
  EventLog* const log = scheduler_->log();
  requests_.begin(block.threads, log);
  if (log) log->count_accesses = [this](int thread) { return requests_.waiting(thread); };
  suspicions_.begin(block.threads);
  volatile_words_.begin();
  unwritten_.clear();
  launch_waits_.clear();
  has_let_go_ = false;
  in_flight_.assign(std::size_t(block.threads), {});
  accumulators_ = 0;
  current_tracer = this;
}

void Tracer::block_ends() {
  current_tracer = nullptr;
  if (launch_waits_.empty()) grid_->lets_go_early = true;
  // Checking all accesses of an endless loop would take as long as the loop.
  if (scheduler_->given_up()) requests_.forget(scheduler_->current().number);
  requests_.check_all();
  suspicions_.finish();
  volatile_words_.finish([this](const Race& race) { report(race); });
  report_unwritten();
  if (has_faults_) report_suspects();
  requests_.finish();
  const auto counts = requests_.take();
  const std::lock_guard lock(grid_->mutex);
  grid_->busy_blocks += counts.empty() ? 0 : 1;
  for (const auto& [kind, of_kind] : counts) grid_->counts[kind].add(of_kind);
  grid_->barriers += barriers_;
}

Tracer::Place Tracer::place_of(std::uintptr_t address, std::size_t bytes) {
  if (address - global_begin_ < kGlobalBytes)
    return {is_allocated(reinterpret_cast<const void*>(address), bytes) ? Space::global : Space::outside};
  if (!is_in_recent_array(address)) {
    if (address - dynamic_begin_ < kMaxSharedBytes) {
      other_ = recent_;
      recent_ = {dynamic_begin_, block_.dynamic_shared_bytes, 0};
    } else if (address - static_begin_ < static_end_ - static_begin_) {
      // Other thread-local variables between the arrays are not relevant here.
      auto array = std::upper_bound(
          static_shared_.begin(), static_shared_.end(), address,
          [](std::uintptr_t value, const auto& array) { return value < std::uintptr_t(array.data()); });
      --array;
      const auto begin = std::uintptr_t(array->data());
      if (address - begin >= array->size()) return {Space::other};
      other_ = recent_;
      recent_ = {begin, array->size(), kMaxSharedBytes + (begin - static_begin_)};
    } else if (address - variables_begin_ < variables_bytes_) {
      return {Space::variable};
    } else {
      return {address < kLowestAddress ? Space::outside : Space::other};
    }
  }
  const std::size_t at = address - recent_.begin;
  return {at < recent_.bytes && bytes <= recent_.bytes - at ? Space::shared : Space::outside,
          recent_.offset + at};
}

void Tracer::accesses_recent_array(int thread, Access access, std::uintptr_t address, std::size_t bytes,
                                   bool aligned, const void* return_address) {
  const std::size_t at = address - recent_.begin;
  if (bytes > kWidest || bytes > recent_.bytes - at || (aligned && (address & (bytes - 1))))
    return accesses(thread, access, address, bytes, aligned, return_address);
  const Site site = site_of_code(return_address);
  const bool is_checked_later = aligned && access == Access::load;
  suspicions_.goes_on(thread);
  const uint64_t kind = Kind{site, uint16_t(bytes), access, true, is_checked_later}.packed();
  if (is_checked_later) return requests_.add_unchecked(thread, kind, address);
  requests_.add(thread, kind, address);
  check_shared(thread, access, address, recent_.offset + at, bytes, site);
}

void Tracer::touches_sectors(const Sectors& sectors, Access access) {
  for (uint32_t i = 0; i < sectors.count; ++i) grid_->memory.touch(sectors.number[i], access);
}

void Tracer::checks(int thread, const Kind& kind, uint64_t address) {
  const std::size_t offset = offset_of_shared(address);
  bool is_written;
  const auto race = races_->access(clocks_, thread, offset, kind.bytes, kind.access, kind.site, is_written);
  if (!is_written) unwritten_.try_emplace({kind.site, offset}, Unwritten{thread, kind.bytes});
  if (race) judge(*race, thread, address, kind.bytes);
}

void Tracer::checks(int warp, const Kind& kind, uint64_t first, std::span<const SameAddress> parts) {
  if (together_.groups_count == 0) {
    uint32_t lanes = 0;
    for (const SameAddress& part : parts) lanes |= part.lanes;
    look_up_together(warp, lanes);
  }
  const std::size_t offset = offset_of_shared(first);
  for (const SameAddress& part : parts) {
    bool noted = together_.known != nullptr, is_written = true;
    for (int i = 0; noted && i < together_.groups_count; ++i)
      if (const uint32_t lanes = part.lanes & together_.groups[i].lanes)
        noted = races_->notes_loads(together_.known, together_.groups[i].clock, warp, lanes,
                                    offset + part.offset, kind.bytes, kind.site, is_written);
    if (!noted)
      for (uint32_t left = part.lanes; left; left &= left - 1)
        checks(warp * 32 + __builtin_ctz(left), kind, first + part.offset);
    else if (!is_written)
      unwritten_.try_emplace({kind.site, offset + part.offset},
                             Unwritten{warp * 32 + __builtin_ctz(part.lanes), kind.bytes});
  }
}

void Tracer::look_up_together(int warp, uint32_t lanes) {
  together_.known = clocks_.known_to_all(warp * 32, lanes);
  while (lanes) {
    auto& group = together_.groups[together_.groups_count++];
    group = {clocks_.now(warp * 32 + __builtin_ctz(lanes)), 0};
    for (uint32_t left = lanes; left; left &= left - 1)
      if (const int lane = __builtin_ctz(left); clocks_.now(warp * 32 + lane) == group.clock)
        group.lanes |= 1u << lane;
    lanes &= ~group.lanes;
  }
}

void Tracer::accesses(int thread, Access access, std::uintptr_t address, std::size_t bytes, bool aligned,
                      const void* return_address) {
  const Place place = place_of(address, bytes);
  if (place.space == Space::other) return;
  const Site site = site_of_code(return_address);
  if (place.space == Space::outside)
    out_of_bounds(access, reinterpret_cast<const void*>(address), bytes, site);
  if (aligned && (address & (bytes - 1)))
    misaligned(access, reinterpret_cast<const void*>(address), bytes, site);
  if (place.space == Space::shared && bytes <= kWidest && !meets(access))
    return accesses_recent_array(thread, access, address, bytes, aligned, return_address);
  // Copies of structs include padding, which may be unwritten.
  if (aligned && !writes(access)) check_written(thread, address, bytes, site, place);
  if (aligned && access == Access::load && bytes == sizeof(void*)) check_pointer(address, site, place);
  note(thread, access, address, bytes, site, place);
}

void Tracer::accesses_volatile(int thread, Access access, std::uintptr_t address,
                               const void* return_address) {
  const Place place = place_of(address, 1);
  if (place.space != Space::shared) return;
  if (writes(access))
    volatile_words_.store(thread, place.offset, site_of_code(return_address));
  else
    volatile_words_.load(thread, place.offset, site_of_code(return_address));
}

void Tracer::reads_before_update(int thread, std::uintptr_t address, std::size_t bytes,
                                 const void* return_address) {
  const Place place = place_of(address, bytes);
  const Site site = site_of_code(return_address);
  if (place.space == Space::shared && !races_->is_written(place.offset, bytes)) {
    const std::lock_guard lock(grid_->mutex);
    grid_->faults.add_unwritten("shared", site, block_.number, thread, describe_shared(place.offset));
  } else {
    check_written(thread, address, bytes, site, place);
  }
}

/// Checks a loaded word that may be a pointer: blocks that run one after another on the same OS thread have
/// their shared memory at the same address.
void Tracer::check_pointer(std::uintptr_t address, Site site, Place place) {
  if (place.space != Space::global && place.space != Space::variable) return;
  std::uintptr_t pointer;
  std::memcpy(&pointer, reinterpret_cast<const void*>(address), sizeof pointer);
  if (!current_worker->memory.contains(reinterpret_cast<const void*>(pointer), 1)) return;
  const DeviceMemory& memory = place.space == Space::global ? grid_->memory : grid_->variables;
  const auto writer = memory.last_writer(address);
  if (writer && *writer != block_.number)
    stop(Access::load, sizeof pointer, site,
         "a pointer to shared memory that block " + std::to_string(*writer) + " stored here" + kSharedIsOwn);
}

/// Checks whether a load reads unwritten memory. Device memory that is not 0xff has been written.
void Tracer::check_written(int thread, std::uintptr_t address, std::size_t bytes, Site site, Place place) {
  if (place.space == Space::shared && !races_->is_written(place.offset, bytes)) {
    unwritten_.try_emplace({site, place.offset}, Unwritten{thread, bytes});
  } else if (place.space == Space::global) {
    const auto* memory = reinterpret_cast<const unsigned char*>(address);
    for (std::size_t i = 0; i < bytes; ++i)
      if (memory[i] != 0xff) return;
    if (grid_->memory.is_written(address, bytes) || is_written(memory, bytes)) return;
    const std::lock_guard lock(grid_->mutex);
    grid_->faults.add_unwritten("device", site, block_.number, thread,
                                current_worker->memory.describe(memory));
  }
}

void Tracer::touches(int thread, const Touched& touched) {
  const auto address = std::uintptr_t(touched.address);
  if (touched.access == Access::load && touched.bytes > 0 && touched.bytes <= kWidest && suspicions_.none() &&
      known_reads_ && known_reads_->is_known_read(address, touched.bytes))
    return requests_.add(thread,
                         Kind{site_of_instruction(touched.instruction, touched.where),
                              uint16_t(touched.bytes), Access::load, false}
                             .packed(),
                         address);
  const Place place = place_of(address, touched.bytes);
  if (touched.bytes == 0 || place.space == Space::other) return;
  note(thread, touched.access, address, touched.bytes,
       site_of_instruction(touched.instruction, touched.where), place);
}

void Tracer::touches_together(int warp, const Touched& touched,
                              std::span<const unsigned char* const, 32> of_lane) {
  uint64_t addresses[32], offsets[32];
  std::transform(of_lane.begin(), of_lane.end(), addresses,
                 [](const unsigned char* address) { return std::uintptr_t(address); });
  const auto [lowest, highest] = std::minmax_element(std::begin(addresses), std::end(addresses));
  const Place place = place_of(*lowest, *highest - *lowest + touched.bytes);
  if (place.space != Space::shared || touched.bytes > kWidest || !suspicions_.none() ||
      requests_.is_written_down())
    return Observer::touches_together(warp, touched, of_lane);
  for (std::size_t lane = 0; lane < 32; ++lane) offsets[lane] = addresses[lane] - *lowest;
  const Site site = site_of_instruction(touched.instruction, touched.where);
  if (writes(touched.access)) requests_.check_all();
  for (uint32_t left =
           races_->notes_together(clocks_, warp, place.offset, offsets, touched.bytes, touched.access, site);
       left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    check_shared(warp * 32 + lane, touched.access, addresses[lane], place.offset + offsets[lane],
                 touched.bytes, site);
  }
  requests_.add_together(Kind{site, uint16_t(touched.bytes), touched.access, true}.packed(), addresses);
}

void Tracer::note(int thread, Access access, std::uintptr_t address, std::size_t bytes, Site site,
                  Place place) {
  const bool shared = place.space == Space::shared;
  const Access counted = access == Access::volatile_load ? Access::load : access;
  const uint64_t widest = Kind{site, kWidest, counted, shared}.packed();
  std::size_t done = 0;
  for (; done + kWidest <= bytes; done += kWidest) requests_.add(thread, widest, address + done);
  if (done < bytes)
    requests_.add(thread, Kind{site, uint16_t(bytes - done), counted, shared}.packed(), address + done);
  suspicions_.goes_on(thread);
  if (access == Access::atomic) suspicions_.updates(thread, address);
  if (meets(access)) {
    requests_.check_all();
    // A volatile load has not taken place yet, and other OS threads may still write the word.
    if (access == Access::volatile_load && !shared && !acquires_past_)
      order_.will_acquire(thread, address, bytes);
    else if (shared && (access == Access::volatile_load || leaves_word_))
      acquires_word_read(thread, address, bytes);
    // An atomic operation acquires afterwards: the write that it reads may follow this check.
    else if (!acquires_past_ && (shared || access != Access::atomic))
      acquires_word(thread, address);
  }
  if (shared)
    check_shared(thread, access, address, place.offset, bytes, site);
  else
    check_global(place.space == Space::global ? grid_->memory : grid_->variables, thread, access, address,
                 bytes, site);
  if (access != Access::atomic) return;
  if (shared)
    clocks_.publish(thread, reinterpret_cast<const void*>(address), value_of(address, bytes));
  else
    order_.publish(thread, address, value_of(address, bytes));
}

void Tracer::acquires_word(int thread, std::uintptr_t address) {
  if (const Space space = place_of(address, 1).space; space == Space::global || space == Space::variable)
    order_.acquire(thread, address);
  else
    clocks_.acquire(thread, reinterpret_cast<const void*>(address));
}

void Tracer::acquires_word_read(int thread, std::uintptr_t address, std::size_t bytes) {
  if (const Space space = place_of(address, 1).space; space == Space::global || space == Space::variable)
    order_.acquire(thread, address);
  else
    clocks_.acquire_as_of(thread, reinterpret_cast<const void*>(address), value_of(address, bytes));
}

void Tracer::check_shared(int thread, Access access, std::uintptr_t address, std::size_t offset,
                          std::size_t bytes, Site site) {
  if (writes(access)) requests_.check_all();
  if (const auto race = races_->access(clocks_, thread, offset, bytes, access, site))
    judge(*race, thread, address, bytes);
}

/// Reports a race, immediately or once it is certain.
template <typename Found>
void Tracer::judge(const Found& found, int thread, std::uintptr_t address, std::size_t bytes) {
  const Access first = found.first.access, second = found.second.access;
  const auto report_it = [this, found] { report(found); };
  if (first == Access::store && second == Access::store)
    suspicions_.store(thread, address, bytes, report_it);
  else if (first == Access::atomic && second == Access::load)
    suspicions_.load(thread, address, report_it);
  else if (first != Access::load || second != Access::atomic)
    report(found);
}

void Tracer::check_global(DeviceMemory& memory, int thread, Access access, std::uintptr_t address,
                          std::size_t bytes, Site site) {
  const DeviceMemory::Who who{block_.number, thread, thread, clocks_.now(thread), order_};
  if (!grid_->earlier.empty() && &memory == &grid_->memory)
    check_earlier_launches(who, access, address, bytes, site);
  if (const auto conflict = memory.access(who, address, bytes, access, site))
    judge(*conflict, thread, address, bytes);
}

/// Only threads that have waited, or have synchronised with a thread that has, know that the previous launch
/// has finished.
void Tracer::check_earlier_launches(const DeviceMemory::Who& who, Access access, std::uintptr_t address,
                                    std::size_t bytes, Site site) {
  const bool has_waited = knows_launch_before_over(who.thread);
  for (const GridTrace::Earlier& earlier : grid_->earlier) {
    if (has_waited && earlier.ends_before_wait) continue;
    if (auto conflict = earlier.launch->memory.conflict_after(who, address, bytes, access, site)) {
      conflict->launches_before = earlier.distance;
      conflict->ends_before_wait = earlier.ends_before_wait;
      return report(*conflict);
    }
  }
}

void Tracer::write_down(int thread, Site site, Faults fault) {
  EventLog* const log = scheduler_->log();
  if (!log || !written_down_.insert(site).second) return;
  log->fault(thread < block_.threads ? thread : -1, instruction_of(site) ? 0 : site,
             [kernel = grid_->launch.kernel, fault = std::move(fault)] { return fault.report(kernel); });
}

void Tracer::report(const BlockConflict& conflict) {
  if (scheduler_->log()) {
    Faults fault;
    fault.add(conflict, block_.threads);
    write_down(conflict.second.thread, conflict.second.site, std::move(fault));
  }
  const std::lock_guard lock(grid_->mutex);
  has_faults_ = true;
  grid_->faults.add(conflict, block_.threads);
}

void Tracer::report(const Race& race) {
  if (scheduler_->log()) {
    Faults fault;
    fault.add(race, block_.number, block_.threads, describe_shared(race.at), "");
    write_down(race.second.who, race.second.site, std::move(fault));
  }
  const std::lock_guard lock(grid_->mutex);
  has_faults_ = true;
  grid_->faults.add(
      race, block_.number, block_.threads, describe_shared(race.at),
      race.rule == Race::Rule::in_flight ? current_worker->copies.describe_last_wait(race.first.who) : "");
}

/// Reports waits and arrivals that may have caused the block's races. If the block was stopped, its report
/// already contains these.
void Tracer::report_suspects() const {
  if (current_worker->scheduler.alive() > 0 || !current_worker->scheduler.error().empty()) return;
  const std::lock_guard lock(grid_->mutex);
  grid_->faults.add_suspects(block_.number, current_worker->suspects());
}

/// Describes an offset in shared memory, in the race checker's numbering.
std::string Tracer::describe_shared(std::size_t offset) const {
  return current_worker->memory.describe(
      offset < kMaxSharedBytes ? block_.dynamic_shared + offset
                               : reinterpret_cast<const void*>(static_begin_ + offset - kMaxSharedBytes));
}

/// Reports bytes that were never written. Bytes that were written after the read are either a race or
/// intended.
void Tracer::report_unwritten() {
  const std::lock_guard lock(grid_->mutex);
  for (const auto& [place, read] : unwritten_)
    if (!races_->is_written(place.second, read.bytes))
      grid_->faults.add_unwritten("shared", place.first, block_.number, read.thread,
                                  describe_shared(place.second));
}

void Tracer::flies(int thread, const Touched& touched) {
  requests_.check_all();
  touches(thread, touched);
  const Place place = place_of(std::uintptr_t(touched.address), touched.bytes);
  if (place.space == Space::shared) races_->set_in_flight(place.offset, touched.bytes, true);
}

void Tracer::lands(int thread, const Touched& touched) {
  const Place place = place_of(std::uintptr_t(touched.address), touched.bytes);
  if (place.space != Space::shared) return;
  requests_.check_all();
  races_->set_in_flight(place.offset, touched.bytes, false);
  check_shared(thread, Access::store, std::uintptr_t(touched.address), place.offset, touched.bytes,
               site_of_instruction(touched.instruction, touched.where));
}

void Tracer::streams(int thread, const void* object, uint32_t ticket, const Touched& touched) {
  if (touched.bytes == 0) return;
  const auto address = std::uintptr_t(touched.address);
  const uint64_t first = address / kSectorBytes, last = (address + touched.bytes - 1) / kSectorBytes;
  for (uint64_t sector = first; sector <= last; ++sector) grid_->memory.touch(sector, touched.access);
  const Site site = site_of_instruction(touched.instruction, touched.where);
  requests_.add_counts(
      Kind{site, uint16_t(std::min<std::size_t>(touched.bytes, 0xffff)), touched.access, false}.packed(),
      {1, 1, last - first + 1, (touched.bytes + kSectorBytes - 1) / kSectorBytes});
  if (touched.access == Access::atomic)  // it adds to the current value
    for (std::size_t at = 0; at < touched.bytes; at += sizeof(float))
      check_written(thread, address + at, sizeof(float), site, {Space::global});
  const DeviceMemory::Who who{block_.number, thread, clocks_.agent(object), ticket, order_};
  if (!grid_->earlier.empty()) check_earlier_launches(who, touched.access, address, touched.bytes, site);
  if (const auto conflict = grid_->memory.access(who, address, touched.bytes, touched.access, site))
    report(*conflict);
}

void Tracer::takes_registers(int thread, const void* registers, std::size_t bytes, const char* instruction,
                             Location where) {
  auto& mine = in_flight_[std::size_t(thread)];
  const auto begin = std::uintptr_t(registers);
  const Site site = site_of_instruction(instruction, where);
  const auto known =
      std::find_if(mine.begin(), mine.end(), [&](const auto& one) { return one.begin == begin; });
  if (known != mine.end()) {
    *known = {begin, bytes, site};
  } else {
    mine.push_back({begin, bytes, site});
    ++accumulators_;
  }
}

void Tracer::gives_back_registers(int thread, const void* registers) {
  accumulators_ -= int(std::erase_if(in_flight_[std::size_t(thread)], [&](const auto& one) {
    return one.begin == std::uintptr_t(registers);
  }));
}

/// A kernel may also read the program's constants. The processor refuses invalid addresses.
void Tracer::check_host(Access access, std::uintptr_t address, std::size_t bytes,
                        const void* return_address) const {
  const auto image = std::uintptr_t(__executable_start);
  if (address - image < std::uintptr_t(_end) - image || !is_mapped(address)) return;
  if (const std::string shared = SharedMemory::describe_of_others(reinterpret_cast<const void*>(address));
      !shared.empty())
    stop(access, bytes, site_of_code(return_address), shared + kSharedIsOwn);
  stop(access, bytes, site_of_code(return_address),
       "host memory, an illegal address on a GPU: a pointer within a struct, or one that the kernel has "
       "loaded, points there. Copy the data to a device::Buffer (Place::device)");
}

void Tracer::check_accumulators(int thread, Access access, std::uintptr_t address,
                                const void* return_address) const {
  for (const Accumulator& accumulator : in_flight_[std::size_t(thread)]) {
    const std::uintptr_t offset = address - accumulator.begin;
    if (offset >= accumulator.bytes || !is_of_kernel(site_of_code(return_address))) continue;
    const Site sites[] = {site_of_code(return_address), accumulator.site};
    const auto lines = source_lines(sites, grid_->launch.kernel);
    current_worker->scheduler.abandon(
        "accumulator register " + std::to_string(offset / sizeof(float)) + " is " +
        (writes(access) ? "written" : "read") + " at " + lines.at(sites[0]).described() + " while the " +
        lines.at(sites[1]).described() + " is in flight: leave it alone until the wgmma_wait for its group");
  }
}

void Tracer::check_owner(int thread, Access access, std::uintptr_t address,
                         const void* return_address) const {
  if (accumulators_ > 0) check_accumulators(thread, access, address, return_address);
  const Site site = site_of_code(return_address);
  const Thread* owner = current_worker->scheduler.owner_of_local(reinterpret_cast<const void*>(address));
  if (!owner || owner == &scheduler_->current() || !is_of_kernel(site)) return;
  current_worker->scheduler.abandon(
      noun(access) + (" at " + line_of(site).described()) + ": this is a local variable of thread " +
      std::to_string(owner->number) +
      ". A thread's locals are in its registers or in local memory, where the same address refers to "
      "different memory for each thread: pass the value by a shuffle or through shared memory");
}

void Tracer::reads_for_warp(int warp, const Touched& touched) {
  const Place place = place_of(std::uintptr_t(touched.address), touched.bytes);
  if (place.space != Space::shared) return;
  if (const auto race = races_->read_for_warp(clocks_, warp, place.offset, touched.bytes,
                                              site_of_instruction(touched.instruction, touched.where)))
    report(*race);
}

void Tracer::touches_async(int thread, const void* object, uint32_t ticket, const Touched& touched) {
  const Place place = place_of(std::uintptr_t(touched.address), touched.bytes);
  if (place.space != Space::shared) return;
  requests_.check_all();
  if (const auto race =
          races_->async_access(clocks_, thread, clocks_.agent(object), ticket, place.offset, touched.bytes,
                               touched.access, site_of_instruction(touched.instruction, touched.where)))
    report(*race);
}

}  // namespace flashbook::sim
