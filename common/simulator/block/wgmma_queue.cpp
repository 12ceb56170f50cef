#include "common/simulator/block/wgmma_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "common/simulator/block/box.h"
#include "common/simulator/block/wgmma_registers.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/launch.h"
#include "common/simulator/tensor_core.h"

namespace flashbook::sim {
namespace {

constexpr int kRows = 64;

/// The registers of an accumulator in flight hold this signalling NaN. Arithmetic sets the quiet bit.
constexpr uint32_t kInFlight = 0x7fa5'a5a5, kQuietBit = 0x0040'0000;

const WgmmaCall& call_of(void* const* calls, int thread) {
  return *static_cast<const WgmmaCall*>(calls[thread]);
}

int inner_of(DType type) { return type == DType::e4m3 ? 32 : 16; }

/// Returns a description such as "wgmma m64n128k16 of f16 at kernel.cuh:12".
std::string describe(const WgmmaKind& kind, Location where) {
  return "wgmma m64n" + std::to_string(kind.n) + "k" + std::to_string(inner_of(kind.type)) + " of " +
         std::string(name_of(kind.type)) + " at " + to_string(where);
}

[[noreturn]] void threads_disagree(const WgmmaCall& first, int thread, Location where) {
  throw Error(describe(first.kind, where) + ": thread " + std::to_string(thread) +
              " of the warpgroup passes a different product, descriptor or `accumulate` than thread 0");
}

[[noreturn]] void no_fence(const WgmmaKind& kind, Location where, const std::string& why) {
  throw Error(describe(kind, where) + ": wgmma_fence is missing: " + why);
}

[[noreturn]] void touched(const std::string& what, int number, int thread, const std::string& how,
                          const WgmmaKind& kind, Location where, const char* cure) {
  throw Error(what + " register " + std::to_string(number) + " of thread " + std::to_string(thread) +
              " was " + how + " while the " + describe(kind, where) + " was in flight: " + cure);
}

}  // namespace

void WgmmaQueue::begin_block(int first_thread, SharedBytes shared) {
  *this = WgmmaQueue();
  first_thread_ = first_thread;
  shared_ = shared;
}

void WgmmaQueue::issue(void* const* calls, Location where) {
  const WgmmaCall& first = call_of(calls, 0);
  for (int thread = 1; thread < kThreads; ++thread) {
    const WgmmaCall& call = call_of(calls, thread);
    if (call.kind != first.kind || call.a != first.a || call.b != first.b ||
        call.accumulate != first.accumulate)
      threads_disagree(first, first_thread_ + thread, where);
  }
  if (fences_ == 0) no_fence(first.kind, where, "the first wgmma needs one before it");
  require_operand("B", SharedMatrix(first.b, first.kind.b_is_mn_major, first.kind.n), first.kind, where);
  if (!first.a_registers)
    require_operand("A", SharedMatrix(first.a, first.kind.a_is_mn_major, kRows), first.kind, where);

  const std::size_t accumulator = take_accumulator(calls, where);
  const std::size_t fragment = first.a_registers ? take_fragment(calls, where) : 0;
  pending_.push_back({first, accumulator, fragment, commits_, where});
  tell_of_reads(first, where);
  last_group_ = commits_;
  last_product_ = where;
  if (scheduler_log()) {
    const auto start = [&](uint64_t matrix, bool is_mn_major, int lines) {
      return "shared + " + std::to_string(SharedMatrix(matrix, is_mn_major, lines).address(0, 0));
    };
    log("wgmma", where,
        "m64n" + std::to_string(first.kind.n) + "k" + std::to_string(inner_of(first.kind.type)) + " of " +
            std::string(name_of(first.kind.type)) + ", A in " +
            (first.kind.a_in_registers ? "registers" : start(first.a, first.kind.a_is_mn_major, kRows)) +
            ", B in " + start(first.b, first.kind.b_is_mn_major, first.kind.n) +
            (first.accumulate ? ", is added" : ", begins a sum"));
  }
}

/// Throws Error if a descriptor is invalid, or if its swizzle differs from that of the map through which TMA
/// loaded the tile.
void WgmmaQueue::require_operand(const char* which, const SharedMatrix& matrix, const WgmmaKind& kind,
                                 Location where) const {
  const uint32_t span = matrix.swizzle_bytes();
  if (matrix.start() < shared_.size)
    if (const std::string tile =
            current_worker->tensor_copies.other_swizzle(shared_.data + matrix.start(), span);
        !tile.empty())
      throw Error(describe(kind, where) + ": the descriptor of " + which + " names " + name_of_swizzle(span) +
                  ", and " + tile + ": name the same on both sides");
  matrix.require_legal(which, shared_, where);
}

EventLog* WgmmaQueue::scheduler_log() { return current_worker->scheduler.log(); }

/// Logs an instruction of the warpgroup and the state of its products.
void WgmmaQueue::log(const char* what, Location where, const std::string& detail) const {
  const auto open = std::count_if(pending_.begin(), pending_.end(),
                                  [this](const Product& product) { return product.group == commits_; });
  std::string state = std::to_string(pending_.size() - std::size_t(open)) +
                      " committed and not waited for, " + std::to_string(open) + " in the open group";
  scheduler_log()->add_warps(first_thread_ / kWarpLanes, kThreads / kWarpLanes,
                             {EventKind::arrives, what, where,
                              "products of warps " + std::to_string(first_thread_ / kWarpLanes) + "-" +
                                  std::to_string((first_thread_ + kThreads) / kWarpLanes - 1),
                              detail.empty() ? state : detail + ": " + state});
}

/// Returns the accumulator in the threads' registers, marked as in flight.
std::size_t WgmmaQueue::take_accumulator(void* const* calls, Location where) {
  const WgmmaCall& first = call_of(calls, 0);
  std::array<float*, kThreads> registers;
  for (int thread = 0; thread < kThreads; ++thread) registers[std::size_t(thread)] = call_of(calls, thread).d;
  const std::size_t found = find_accumulator(registers, first.kind, where);
  Accumulator& mine = accumulators_[found];
  mine.last_group = commits_;
  if (Observer* observer = current_worker->observer())
    for (int thread = 0; thread < kThreads; ++thread)
      observer->takes_registers(first_thread_ + thread, registers[std::size_t(thread)],
                                std::size_t(first.kind.n / 2) * sizeof(float), "wgmma", where);
  if (mine.in_flight++ > 0) return found;

  const int n = first.kind.n;
  if (first.accumulate) {
    require_fenced(mine, first.kind, where);
  } else if (mine.fences_at_wait == fences_) {
    // The kernel has presumably read the last result after that wait, so the next product needs a fence.
    no_fence(first.kind, where,
             "there was a wgmma_wait for this accumulator's last product since the last fence");
  }
  mine.is_new = false;
  mine.fences_at_wait = -1;
  for (float* of_thread : registers) std::fill_n(of_thread, n / 2, std::bit_cast<float>(kInFlight));
  return found;
}

/// Reads the values to which a product adds; they must not have changed since the last fence or product.
void WgmmaQueue::require_fenced(Accumulator& accumulator, const WgmmaKind& kind, Location where) {
  static thread_local std::vector<float> now;
  now.resize(accumulator.values.size());
  gather_accumulator(accumulator.registers, accumulator.n, now.data());
  if (!accumulator.is_new &&
      std::memcmp(now.data(), accumulator.values.data(), now.size() * sizeof(float)) != 0)
    no_fence(kind, where, "the accumulator has been written since the last fence");
  const auto was_in_flight = [](float value) {
    return (std::bit_cast<uint32_t>(value) | kQuietBit) == (kInFlight | kQuietBit);
  };
  if (std::any_of(now.begin(), now.end(), was_in_flight))
    throw Error(describe(kind, where) +
                ": its accumulator was computed from registers that were in flight: read them after the "
                "wgmma_wait for their group");
  accumulator.values = now;
}

/// Returns the accumulator in these registers. Forgets other accumulators that overlap them: their stack
/// memory now belongs to another variable.
std::size_t WgmmaQueue::find_accumulator(const std::array<float*, kThreads>& registers, const WgmmaKind& kind,
                                         Location where) {
  std::size_t found = accumulators_.size();
  for (std::size_t i = 0; i < accumulators_.size(); ++i) {
    Accumulator& other = accumulators_[i];
    const float *begin = other.registers[0], *end = begin + other.n / 2;
    if (registers[0] + kind.n / 2 <= begin || end <= registers[0]) {
      if (other.n == 0 && found == accumulators_.size()) found = i;
      continue;
    }
    if (other.registers == registers && other.n == kind.n && other.inner == inner_of(kind.type)) return i;
    if (other.in_flight > 0)
      throw Error(describe(kind, where) +
                  ": its accumulator overlaps one in flight that has another shape: wgmma_wait for it first");
    other.n = 0;
  }
  if (found == accumulators_.size()) accumulators_.emplace_back();
  accumulators_[found] = {registers, kind.n, inner_of(kind.type),
                          std::vector<float>(std::size_t(kRows * kind.n))};
  return found;
}

/// Returns the matrix a held in the threads' registers.
std::size_t WgmmaQueue::take_fragment(void* const* calls, Location where) {
  const WgmmaCall& first = call_of(calls, 0);
  Fragment now{};
  for (int thread = 0; thread < kThreads; ++thread)
    now.registers[std::size_t(thread)] = call_of(calls, thread).a_registers;
  copy_registers(now);
  std::size_t found = 0;
  while (found < fragments_.size() && fragments_[found].registers != now.registers) ++found;
  if (found == fragments_.size()) {
    fragments_.push_back(now);
  } else if (fragments_[found].values != now.values) {
    if (fragments_[found].in_flight > 0)
      require_unchanged(fragments_[found],
                        *std::find_if(pending_.begin(), pending_.end(), [&](const Product& product) {
                          return product.call.a_registers && product.fragment == found;
                        }));
    no_fence(first.kind, where, "registers of a have been written since the last fence");
  }
  ++fragments_[found].in_flight;
  return found;
}

void WgmmaQueue::copy_registers(Fragment& fragment) {
  for (std::size_t thread = 0; thread < kThreads; ++thread)
    std::memcpy(&fragment.values[thread * kFragmentRegisters], fragment.registers[thread],
                kFragmentRegisters * sizeof(uint32_t));
}

void WgmmaQueue::fence(Location where) {
  ++fences_;
  if (scheduler_log()) log("wgmma_fence", where, "");
  // Notes that products may read the current values of the registers from now on.
  for (Accumulator& accumulator : accumulators_)
    if (accumulator.n > 0 && accumulator.in_flight == 0)
      gather_accumulator(accumulator.registers, accumulator.n, accumulator.values.data());
  for (Fragment& fragment : fragments_)
    if (fragment.in_flight == 0) copy_registers(fragment);
}

/// Reports a product's reads of shared memory to the observer.
void WgmmaQueue::tell_of_reads(const WgmmaCall& call, Location where) {
  Observer* observer = current_worker->observer();
  if (!observer) return;
  constexpr std::size_t kPiece = 16;
  const uint32_t ticket = observer->begins_async(this);
  const auto read = [&](const SharedMatrix& matrix) {
    for (int line = 0; line < matrix.lines(); ++line)
      for (int piece = 0; piece < matrix.pieces(); ++piece) {
        const Touched touched{Access::load, shared_.data + matrix.address(line, piece), kPiece, "wgmma",
                              where};
        observer->touches_async(first_thread_, this, ticket, touched);
        // Each warp is checked separately. (A few pieces are enough, since tiles are written as a whole.)
        if (line % 8 == 0 && piece == 0)
          for (int warp = 1; warp < kThreads / kWarpLanes; ++warp)
            observer->reads_for_warp(first_thread_ / kWarpLanes + warp, touched);
      }
  };
  if (!call.kind.a_in_registers) read(SharedMatrix(call.a, call.kind.a_is_mn_major, kRows));
  read(SharedMatrix(call.b, call.kind.b_is_mn_major, call.kind.n));
  tickets_[commits_] = ticket;
}

/// Reports to the observer that the awaited groups have finished reading.
void WgmmaQueue::tell_of_wait() {
  Observer* observer = current_worker->observer();
  const auto end = tickets_.lower_bound(waited_for_);
  if (!observer || end == tickets_.begin()) return;
  for (int thread = 0; thread < kThreads; ++thread)
    observer->knows_async_done(first_thread_ + thread, this, std::prev(end)->second);
  tickets_.erase(tickets_.begin(), end);
}

void WgmmaQueue::commit(Location where) {
  ++commits_;
  if (scheduler_log()) log("wgmma_commit", where, "closes group " + std::to_string(commits_ - 1));
}

void WgmmaQueue::wait(int groups_in_flight, Location where) {
  if (last_group_ == commits_)
    throw Error(describe_call("wgmma_wait", where) + ": the wgmma at " + to_string(last_product_) +
                " is not committed, so this does not wait for it: call wgmma_commit first");
  waited_for_ = std::max(waited_for_, commits_ - groups_in_flight);
  tell_of_wait();
  int done = 0;
  while (done < pending() && pending_[std::size_t(done)].group < waited_for_) ++done;
  compute(done);
  if (scheduler_log())
    log("wgmma_wait", where,
        waited_for_ > 0 ? "groups up to " + std::to_string(waited_for_ - 1) + " are done" : "");
  for (Accumulator& accumulator : accumulators_)
    if (accumulator.fences_at_wait < 0 && accumulator.last_group < waited_for_) {
      accumulator.fences_at_wait = fences_;
      if (Observer* observer = current_worker->observer())
        for (int thread = 0; thread < kThreads; ++thread)
          observer->gives_back_registers(first_thread_ + thread, accumulator.registers[std::size_t(thread)]);
    }
}

void WgmmaQueue::compute(int count) {
  for (int i = 0; i < count; ++i) compute(pending_[std::size_t(i)]);
  pending_.erase(pending_.begin(), pending_.begin() + count);
}

void WgmmaQueue::compute(const Product& product) {
  static thread_local float a[kRows * kMaxInner], b[kMaxInner * kMaxColumns];
  const WgmmaKind& kind = product.call.kind;
  if (kind.a_in_registers) {
    Fragment& fragment = fragments_[product.fragment];
    require_unchanged(fragment, product);
    --fragment.in_flight;
    read_fragment(kind.type, fragment.values, a);
  } else {
    read_matrix(SharedMatrix(product.call.a, kind.a_is_mn_major, kRows), kind.type, false, shared_, a);
  }
  read_matrix(SharedMatrix(product.call.b, kind.b_is_mn_major, kind.n), kind.type, true, shared_, b);

  Accumulator& accumulator = accumulators_[product.accumulator];
  if (!product.call.accumulate) std::fill(accumulator.values.begin(), accumulator.values.end(), 0.0f);
  multiply_accumulate(kind.type, kRows, kind.n, inner_of(kind.type), a, b, accumulator.values.data());
  if (--accumulator.in_flight == 0) {
    require_untouched(accumulator, product);
    scatter_accumulator(accumulator.registers, kind.n, accumulator.values.data());
  }
}

void WgmmaQueue::require_untouched(const Accumulator& accumulator, const Product& product) const {
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int i = 0; i < accumulator.n / 2; ++i) {
      const auto now = std::bit_cast<uint32_t>(accumulator.registers[std::size_t(thread)][i]);
      if (now == kInFlight) continue;
      touched("accumulator", i, first_thread_ + thread,
              (now | kQuietBit) == (kInFlight | kQuietBit) ? "used in arithmetic" : "written",
              product.call.kind, product.where, "leave it alone until the wgmma_wait for its group");
    }
  }
}

void WgmmaQueue::require_unchanged(const Fragment& fragment, const Product& product) const {
  for (int thread = 0; thread < kThreads; ++thread)
    for (int i = 0; i < kFragmentRegisters; ++i)
      if (fragment.registers[std::size_t(thread)][i] !=
          fragment.values[std::size_t(thread * kFragmentRegisters + i)])
        touched("A", i, first_thread_ + thread, "overwritten, or its variable went out of scope,",
                product.call.kind, product.where,
                "give every product in flight registers of its own until its wgmma_wait");
}

void WgmmaQueue::require_all_waited_for() const {
  if (last_group_ >= waited_for_)
    throw Error("a thread exits, but the wgmma at " + to_string(last_product_) +
                " has not been waited for: call wgmma_commit and wgmma_wait<0> before the end");
}

}  // namespace flashbook::sim
