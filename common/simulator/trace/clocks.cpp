#include "common/simulator/trace/clocks.h"

#include <algorithm>
#include <utility>

namespace flashbook::sim {
namespace {

void raise(uint32_t* to, const uint32_t* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = std::max(to[i], from[i]);
}

void raise(std::vector<uint32_t>& to, const uint32_t* from, std::size_t count) {
  if (to.empty()) to.resize(count);
  raise(to.data(), from, count);
}

}  // namespace

void Clocks::begin(int threads) {
  threads_ = threads;
  width_ = std::size_t(threads + kAgents + (threads + 31) / 32);
  own_.assign(std::size_t(threads), 1);  // at first, every thread knows only its own first count
  rows_.assign(std::size_t(threads), {});
  nothing_.assign(width_, 0);
  for (Vector& known : fenced_) known.clear();
  objects_.clear();
  last_ = nullptr;
  agents_.clear();
  missed_.clear();
  tickets_.assign(kAgents, 0);
}

/// Returns the thread's row for modification.
uint32_t* Clocks::change(int thread) {
  Row& row = rows_[std::size_t(thread)];
  if (row.changed.empty()) row.changed.assign(known_of_others(thread), known_of_others(thread) + width_);
  row.released_to = nullptr;
  return row.changed.data();
}

/// Replaces all of the thread's knowledge with `known`.
void Clocks::share(Row& row, const SharedRow& known) {
  row.shared = known;
  row.changed.clear();
  row.released_to = nullptr;
}

/// Updates the lower bounds over the threads of each warp.
void Clocks::note_least(Vector& known, int first_thread) const {
  const auto begin = known.begin() + first_thread, end = begin + std::min(32, threads_ - first_thread);
  known[std::size_t(threads_ + kAgents + first_thread / 32)] = *std::min_element(begin, end);
}

void Clocks::join(int first_thread, uint32_t lanes) {
  Vector all(width_);
  const uint32_t* last = nullptr;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int thread = first_thread + __builtin_ctz(left);
    if (const uint32_t* known = known_of_others(thread); known != last)
      raise(all.data(), last = known, width_);
  }
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int thread = first_thread + __builtin_ctz(left);
    all[std::size_t(thread)] = own_[std::size_t(thread)]++;
  }
  note_least(all, first_thread);
  const SharedRow joined(std::move(all));
  for (uint32_t left = lanes; left; left &= left - 1)
    share(rows_[std::size_t(first_thread + __builtin_ctz(left))], joined);
  for (Vector& known : fenced_) {
    if (known.empty()) continue;
    Vector of_all;
    for (uint32_t left = lanes; left; left &= left - 1)
      raise(of_all, row_of(known, first_thread + __builtin_ctz(left), width_), width_);
    for (uint32_t left = lanes; left; left &= left - 1)
      std::copy(of_all.begin(), of_all.end(), row_of(known, first_thread + __builtin_ctz(left), width_));
  }
}

void Clocks::release(int thread, const void* object) {
  Object& to = object_at(object);
  Row& row = rows_[std::size_t(thread)];
  if (to.gathering.empty()) to.gathering.resize(width_);
  const bool is_shared = row.changed.empty();
  if (!is_shared || (row.shared && !(row.shared == to.gathered))) {
    raise(to.gathering.data(), known_of_others(thread), width_);
    if (is_shared) to.gathered = row.shared;
  }
  row.released_to = object;
  row.released_round = to.rounds;
  to.gathering[std::size_t(thread)] = own_[std::size_t(thread)]++;
  for (std::size_t i = 0; i < fenced_.size(); ++i)
    if (!fenced_[i].empty()) raise(to.gathering_fenced[i], row_of(fenced_[i], thread, width_), width_);
}

void Clocks::complete(const void* object) {
  Object& round = object_at(object);
  ++round.rounds;
  if (!round.gathering.empty())
    for (int first = 0; first < threads_; first += 32) note_least(round.gathering, first);
  round.complete = round.gathering.empty() ? SharedRow() : SharedRow(std::move(round.gathering));
  round.gathering.clear();
  round.completed = std::exchange(round.gathered, SharedRow());
  round.complete_fenced.swap(round.gathering_fenced);
  for (Vector& gathering : round.gathering_fenced) gathering.clear();
}

void Clocks::acquire(int thread, const void* object) {
  const Object& from = object_at(object);
  Row& row = rows_[std::size_t(thread)];
  if (from.complete && !(row.shared == from.complete)) {
    // Whether all of the thread's knowledge was released in that round.
    const bool is_part = (row.released_to == object && row.released_round + 1 == from.rounds) ||
                         (row.changed.empty() && (!row.shared || row.shared == from.completed));
    if (is_part)
      share(row, from.complete);
    else
      raise(change(thread), from.complete.data(), width_);
  } else if (from.complete && !row.changed.empty()) {
    raise(change(thread), from.complete.data(), width_);
  }
  for (std::size_t i = 0; i < fenced_.size(); ++i)
    if (const Vector& known = from.complete_fenced[i]; !known.empty() && !fenced_[i].empty())
      raise(row_of(fenced_[i], thread, width_), known.data(), width_);
}

/// Returns the row of the thread's knowledge behind such a fence, for modification.
uint32_t* Clocks::fenced_row(Fence fence, int thread) {
  Vector& known = fenced_[std::size_t(fence)];
  if (known.empty()) known.resize(std::size_t(threads_) * width_);
  return row_of(known, thread, width_);
}

void Clocks::fence_proxy(int thread, Proxied memory) {
  uint32_t* known = fenced_row(Fence(memory), thread);
  raise(known, known_of_others(thread), width_);
  // The fence does not cover the thread's later work.
  known[thread] = own_[std::size_t(thread)]++;
}

void Clocks::fence(int thread) {
  uint32_t* known = fenced_row(Fence::memory, thread);
  raise(known, known_of_others(thread), width_);
  if (Vector& proxy = fenced_[std::size_t(Fence::global)]; !proxy.empty())
    raise(fenced_row(Fence::memory_of_proxy, thread), row_of(proxy, thread, width_), width_);
  // The fence does not cover the thread's later work.
  known[thread] = own_[std::size_t(thread)]++;
}

std::vector<uint32_t> Clocks::fenced(int thread) {
  Vector& all = fenced_[std::size_t(Fence::memory)];
  if (all.empty()) return {};
  const uint32_t* row = row_of(all, thread, width_);
  if (std::all_of(row, row + width_, [](uint32_t clock) { return clock == 0; })) return {};
  Vector known(row, row + width_);
  known.resize(2 * width_);
  if (Vector& proxy = fenced_[std::size_t(Fence::memory_of_proxy)]; !proxy.empty())
    std::copy_n(row_of(proxy, thread, width_), width_, known.begin() + std::ptrdiff_t(width_));
  return known;
}

void Clocks::publish(int thread, const void* object, uint64_t before) {
  const Vector known = fenced(thread);
  if (known.empty()) return;
  Object& word = object_at(object);
  if (word.before != before) {
    word.before = before;
    word.complete_before = word.complete;
  }
  Vector more = word.complete ? *word.complete : Vector(width_);
  raise(more.data(), known.data(), width_);
  word.complete = SharedRow(std::move(more));
}

void Clocks::acquire_as_of(int thread, const void* object, uint64_t value) {
  const Object& word = object_at(object);
  if (word.before != value) return acquire(thread, object);
  if (std::none_of(missed_.begin(), missed_.end(), [&](const auto& missed) {
        return missed.first == thread && missed.second == word.complete;
      }))
    missed_.emplace_back(thread, word.complete);
  if (word.complete_before) raise(change(thread), word.complete_before.data(), width_);
}

void Clocks::learn(int thread, const Vector& known) { raise(change(thread), known.data(), width_); }

int Clocks::agent(const void* object) {
  const int next = std::min(int(agents_.size()), kAgents - 1);
  return threads_ + agents_.try_emplace(object, next).first->second;
}

void Clocks::learn(int thread, int agent, uint32_t ticket) {
  if (known(thread, agent) < ticket) change(thread)[agent] = ticket;
}

void Clocks::release_agent(int agent, uint32_t ticket, const void* object) {
  Vector& to = object_at(object).gathering;
  if (to.empty()) to.resize(width_);
  to[std::size_t(agent)] = std::max(to[std::size_t(agent)], ticket);
}

}  // namespace flashbook::sim
