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
  proxy_.clear();
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

uint32_t Clocks::known_to_proxy(int thread, int of) const {
  return proxy_.empty() ? 0 : proxy_[std::size_t(thread) * width_ + std::size_t(of)];
}

void Clocks::join(int first_thread, uint32_t lanes) {
  Vector all, all_proxy;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int thread = first_thread + __builtin_ctz(left);
    raise(all, row(thread), width_);
    if (!proxy_.empty()) raise(all_proxy, proxy_row(thread), width_);
  }
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int thread = first_thread + __builtin_ctz(left);
    std::copy(all.begin(), all.end(), row(thread));
    if (!proxy_.empty()) std::copy(all_proxy.begin(), all_proxy.end(), proxy_row(thread));
    ++row(thread)[thread];
  }
}

void Clocks::release(int thread, const void* object) {
  Object& to = objects_[object];
  raise(to.gathering, row(thread), width_);
  if (!proxy_.empty()) raise(to.gathering_proxy, proxy_row(thread), width_);
  ++row(thread)[thread];
}

void Clocks::complete(const void* object) {
  Object& round = objects_[object];
  round.complete.swap(round.gathering);
  round.gathering.clear();
  round.complete_proxy.swap(round.gathering_proxy);
  round.gathering_proxy.clear();
}

void Clocks::acquire(int thread, const void* object) {
  const auto from = objects_.find(object);
  if (from == objects_.end()) return;
  if (const Vector& plain = from->second.complete; !plain.empty()) raise(row(thread), plain.data(), width_);
  if (const Vector& proxy = from->second.complete_proxy; !proxy.empty() && !proxy_.empty())
    raise(proxy_row(thread), proxy.data(), width_);
}

void Clocks::fence_proxy(int thread) {
  if (proxy_.empty()) proxy_.resize(std::size_t(threads_) * width_);
  raise(proxy_row(thread), row(thread), width_);
  // What the thread does from now on is not fenced.
  ++row(thread)[thread];
}

void Clocks::fence(int thread) {
  fenced_[std::size_t(thread)].assign(row(thread), row(thread) + width_);
  // What the thread does from now on is not fenced.
  ++row(thread)[thread];
}

std::vector<uint32_t> Clocks::fenced(int thread) {
  Vector known;
  for (int of = 0; of < threads_; ++of)
    if (knows_fence(thread, of)) raise(known, fenced_[std::size_t(of)].data(), width_);
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
