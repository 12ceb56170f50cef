#include "common/simulator/trace/clocks.h"

#include <algorithm>

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
  width_ = std::size_t(threads + kAgents);
  known_.clear();
  for (Vector& known : proxy_) known.clear();
  fenced_.assign(std::size_t(threads), {});
  objects_.clear();
  agents_.clear();
  tickets_.assign(kAgents, 0);
}

/// Every thread knows of its own first count and of nothing else.
void Clocks::start() {
  known_.resize(std::size_t(threads_) * width_);
  for (int i = 0; i < threads_; ++i) known_[std::size_t(i) * width_ + std::size_t(i)] = 1;
}

void Clocks::join(int first_thread, uint32_t lanes) {
  const auto join_in = [&](Vector& known) {
    Vector all;
    for (uint32_t left = lanes; left; left &= left - 1)
      raise(all, row_of(known, first_thread + __builtin_ctz(left), width_), width_);
    for (uint32_t left = lanes; left; left &= left - 1)
      std::copy(all.begin(), all.end(), row_of(known, first_thread + __builtin_ctz(left), width_));
  };
  if (known_.empty()) start();
  join_in(known_);
  for (Vector& known : proxy_)
    if (!known.empty()) join_in(known);
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int thread = first_thread + __builtin_ctz(left);
    ++row(thread)[thread];
  }
}

void Clocks::release(int thread, const void* object) {
  Object& to = objects_[object];
  raise(to.gathering, row(thread), width_);
  for (std::size_t i = 0; i < proxy_.size(); ++i)
    if (!proxy_[i].empty()) raise(to.gathering_proxy[i], row_of(proxy_[i], thread, width_), width_);
  ++row(thread)[thread];
}

void Clocks::complete(const void* object) {
  Object& round = objects_[object];
  round.complete.swap(round.gathering);
  round.gathering.clear();
  round.complete_proxy.swap(round.gathering_proxy);
  for (Vector& gathering : round.gathering_proxy) gathering.clear();
}

void Clocks::acquire(int thread, const void* object) {
  const auto from = objects_.find(object);
  if (from == objects_.end()) return;
  if (const Vector& plain = from->second.complete; !plain.empty()) raise(row(thread), plain.data(), width_);
  for (std::size_t i = 0; i < proxy_.size(); ++i)
    if (const Vector& proxy = from->second.complete_proxy[i]; !proxy.empty() && !proxy_[i].empty())
      raise(row_of(proxy_[i], thread, width_), proxy.data(), width_);
}

void Clocks::fence_proxy(int thread, Proxied memory) {
  Vector& known = proxy_[std::size_t(memory)];
  if (known.empty()) known.resize(std::size_t(threads_) * width_);
  raise(row_of(known, thread, width_), row(thread), width_);
  // What the thread does from now on is not fenced.
  ++row(thread)[thread];
}

void Clocks::fence(int thread) {
  Vector& at_fence = fenced_[std::size_t(thread)];
  at_fence.assign(row(thread), row(thread) + width_);
  at_fence.resize(2 * width_);
  if (Vector& proxy = proxy_[std::size_t(Proxied::global)]; !proxy.empty())
    std::copy_n(row_of(proxy, thread, width_), width_, at_fence.begin() + std::ptrdiff_t(width_));
  // What the thread does from now on is not fenced.
  ++row(thread)[thread];
}

std::vector<uint32_t> Clocks::fenced(int thread) {
  Vector known;
  for (int of = 0; of < threads_; ++of)
    if (knows_fence(thread, of)) raise(known, fenced_[std::size_t(of)].data(), 2 * width_);
  return known;
}

void Clocks::publish(int thread, const void* object) {
  if (const Vector known = fenced(thread); !known.empty())
    raise(objects_[object].complete, known.data(), width_);
}

void Clocks::learn(int thread, const Vector& known) { raise(row(thread), known.data(), width_); }

int Clocks::agent(const void* object) {
  const int next = std::min(int(agents_.size()), kAgents - 1);
  return threads_ + agents_.try_emplace(object, next).first->second;
}

void Clocks::learn(int thread, int agent, uint32_t ticket) {
  uint32_t& known = row(thread)[agent];
  known = std::max(known, ticket);
}

void Clocks::release_agent(int agent, uint32_t ticket, const void* object) {
  Vector& to = objects_[object].gathering;
  if (to.empty()) to.resize(width_);
  to[std::size_t(agent)] = std::max(to[std::size_t(agent)], ticket);
}

}  // namespace flashbook::sim
