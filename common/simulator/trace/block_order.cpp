#include "common/simulator/trace/block_order.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

namespace flashbook::sim {
namespace {

void merge(Knowledge& to, const Knowledge& from) {
  for (const auto& [block, clocks] : from) {
    auto& mine = to[block];
    if (!mine) mine = clocks;
    if (mine == clocks) continue;
    auto both = std::make_shared<std::vector<uint32_t>>(*mine);
    for (std::size_t i = 0; i < both->size(); ++i) (*both)[i] = std::max((*both)[i], (*clocks)[i]);
    mine = std::move(both);
  }
}

/// Returns a copy of `what` in which the async proxy knows the same as the threads.
Knowledge known_to_proxy(const Knowledge& what) {
  Knowledge result;
  for (const auto& [block, clocks] : what) {
    auto both = std::make_shared<std::vector<uint32_t>>(*clocks);
    const auto middle = both->begin() + std::ptrdiff_t(both->size() / 2);
    std::copy(both->begin(), middle, middle);
    result[block] = std::move(both);
  }
  return result;
}

}  // namespace

uint64_t value_of(std::uintptr_t word, std::size_t bytes) {
  uint64_t value = 0;
  for (std::size_t done = 0; done < bytes; done += sizeof value) {
    uint64_t part = 0;
    std::memcpy(&part, reinterpret_cast<const void*>(word + done), std::min(bytes - done, sizeof part));
    value = value * 0x9e3779b97f4a7c15 + part;
  }
  return value;
}

void Published::add(std::uintptr_t address, const Knowledge& news, uint64_t before) {
  const std::lock_guard lock(mutex_);
  Word& word = words_[address];
  if (word.before != before) {
    word.before = before;
    word.known_before = word.known;
  }
  auto next = word.known ? std::make_shared<Knowledge>(*word.known) : std::make_shared<Knowledge>();
  merge(*next, news);
  word.known = std::move(next);
}

std::shared_ptr<const Knowledge> Published::at(std::uintptr_t word) {
  const std::lock_guard lock(mutex_);
  const auto known = words_.find(word);
  return known == words_.end() ? nullptr : known->second.known;
}

std::shared_ptr<const Knowledge> Published::as_of(std::uintptr_t word, uint64_t value) {
  const std::lock_guard lock(mutex_);
  const auto known = words_.find(word);
  if (known == words_.end()) return nullptr;
  return known->second.before == value ? known->second.known_before : known->second.known;
}

void Published::note_value(std::uintptr_t word, uint64_t before, PastValue now) {
  const auto known = pasts_.find(word);
  if (!now.row) {
    if (known != pasts_.end()) pasts_.erase(known);
    return;
  }
  Past& past = known == pasts_.end() ? pasts_[word] : known->second;
  if (past.values.empty() || past.values.back().value != before)
    past = {0, {PastValue{.value = before, .known = nullptr}}};
  past.values.push_back(std::move(now));
  if (past.values.size() > kMaxValues) past.values.pop_front(), ++past.first;
}

const Published::Past* Published::past_of(std::uintptr_t word, uint64_t latest) const {
  const auto known = pasts_.find(word);
  return known != pasts_.end() && known->second.values.back().value == latest ? &known->second : nullptr;
}

void BlockOrder::begin(uint64_t block, Published& published) {
  block_ = block;
  published_ = &published;
  acquired_.clear();
  missed_.clear();
  loads_.clear();
  reads_.clear();
  last_published_.thread = -1;
}

void BlockOrder::fence(int thread) {
  settle();
  clocks_.fence(thread);
}

void BlockOrder::publish(int thread, std::uintptr_t word, uint64_t before) {
  auto own = std::make_shared<std::vector<uint32_t>>(clocks_.fenced(thread));
  if (own->empty()) return;
  Knowledge known;
  std::set<std::pair<const Knowledge*, bool>> merged;  // many threads have acquired the same knowledge
  for (const Acquired& acquired : acquired_) {
    if (clocks_.known_behind_fence(thread, acquired.thread) < acquired.clock) continue;
    const bool proxied = clocks_.known_to_proxy_behind_fence(thread, acquired.thread) >= acquired.clock;
    if (!merged.emplace(acquired.what.get(), proxied).second) continue;
    merge(known, proxied ? known_to_proxy(*acquired.what) : *acquired.what);
  }
  last_published_ = {thread, word, own};
  known[block_] = std::move(own);
  published_->add(word, known, before);
}

void BlockOrder::note_value(int thread, std::uintptr_t word, uint64_t before, uint64_t now, bool may_fail) {
  const bool has_published = last_published_.thread == thread && last_published_.word == word;
  auto row = has_published ? std::move(last_published_.row) : nullptr;
  last_published_.thread = -1;
  if (before != now || (row && !may_fail))
    published_->note_value(word, before,
                           {now, published_->at(word), block_, thread, clocks_.now(thread), std::move(row)});
}

/// Returns whether `thread` knows of an operation that gave a word this value.
bool BlockOrder::knows(int thread, const PastValue& value) {
  if (!value.row) return true;
  if (value.block == block_)
    return thread == value.thread || clocks_.known(thread, value.thread) >= value.clock;
  return any([&](const Acquired& acquired) {
    const auto known = acquired.what->find(value.block);
    return known != acquired.what->end() && clocks_.known(thread, acquired.thread) >= acquired.clock &&
           std::equal(value.row->begin(), value.row->end(), known->second->begin(), std::less_equal<>());
  });
}

uint64_t BlockOrder::read(int thread, std::uintptr_t word, uint64_t latest, uint32_t accesses) {
  constexpr int kMaxTimes = 4;  // limit for a loop that does other work as well

  const Published::Past* past = published_->past_of(word, latest);
  if (!past) {
    acquire(thread, word);
    return latest;
  }
  const uint64_t last = past->first + past->values.size() - 1;
  uint64_t number = past->first;
  for (auto read = reads_.lower_bound({word, 0}); read != reads_.end() && read->first.first == word; ++read) {
    if (const int reader = read->first.second; reader == thread)
      number = std::max(number, read->second.number + (read->second.accesses + 1 == accesses ||
                                                       read->second.times == kMaxTimes));
    else if (clocks_.known(thread, reader) >= read->second.clock)
      number = std::max(number, read->second.number);
  }
  while (number < last && knows(thread, past->values[number + 1 - past->first])) ++number;
  if (number >= last) {
    acquire(thread, word);
    return latest;
  }
  Read& read = reads_[{word, thread}];
  read = {number, clocks_.now(thread), accesses, read.number == number ? read.times + 1 : 1};
  const PastValue& value = past->values[number - past->first];
  if (value.value == latest) miss(thread, clocks_.now(thread), word);
  acquire(thread, clocks_.now(thread), word, value.known);
  return value.value;
}

void BlockOrder::acquire(int thread, uint32_t clock, std::uintptr_t word,
                         std::shared_ptr<const Knowledge> what) {
  if (!what) return;
  const auto before = std::find_if(acquired_.begin(), acquired_.end(), [&](const Acquired& one) {
    return one.thread == thread && one.word == word && (one.what == what || one.clock == clock);
  });
  if (before != acquired_.end() && before->what == what) return;
  if (const auto own = what->find(block_); own != what->end()) clocks_.learn(thread, *own->second);
  if (before != acquired_.end())
    before->what = std::move(what);  // includes everything published before
  else
    acquired_.push_back({thread, clock, word, std::move(what)});
}

void BlockOrder::will_acquire(int thread, std::uintptr_t word, std::size_t bytes) {
  const Load load{thread, clocks_.now(thread), word, bytes};
  acquire(thread, load.clock, word, as_of(load));
  const auto known = std::find_if(loads_.begin(), loads_.end(), [&](const Load& earlier) {
    return earlier.thread == thread && earlier.word == word;
  });
  if (known == loads_.end())
    loads_.push_back(load);
  else
    *known = load;
}

/// Returns the knowledge that a thread acquires by reading the word's current value.
std::shared_ptr<const Knowledge> BlockOrder::as_of(const Load& load) {
  auto what = published_->as_of(load.word, value_of(load.word, load.bytes));
  if (what != published_->at(load.word)) miss(load.thread, load.clock, load.word);
  return what;
}

/// Notes that a thread has read a value that may be an older, equal one.
void BlockOrder::miss(int thread, uint32_t clock, std::uintptr_t word) {
  const auto before = std::find_if(missed_.begin(), missed_.end(), [&](const Acquired& one) {
    return one.thread == thread && one.word == word;
  });
  Acquired missed{thread, clock, word, published_->at(word)};
  if (before == missed_.end())
    missed_.push_back(std::move(missed));
  else
    before->what = std::move(missed.what);
}

/// Completes all pending acquisitions.
void BlockOrder::settle() {
  for (const Load& load : loads_) acquire(load.thread, load.clock, load.word, as_of(load));
  loads_.clear();
}

/// Returns whether `found` holds for any acquired knowledge.
template <typename Found>
bool BlockOrder::any(const Found& found) {
  if (std::any_of(acquired_.begin(), acquired_.end(), found)) return true;
  if (loads_.empty()) return false;
  settle();
  return std::any_of(acquired_.begin(), acquired_.end(), found);
}

bool BlockOrder::knows(int thread, uint64_t block, int of, uint32_t clock) {
  if (block == block_) return thread == of || clocks_.known(thread, of) >= clock;
  return any([&](const Acquired& acquired) {
    if (clocks_.known(thread, acquired.thread) < acquired.clock) return false;
    const auto known = acquired.what->find(block);
    return known != acquired.what->end() && (*known->second)[std::size_t(of)] >= clock;
  });
}

bool BlockOrder::would_know(int thread, uint64_t block, int of, uint32_t clock) {
  return std::any_of(missed_.begin(), missed_.end(), [&](const Acquired& missed) {
    if (missed.thread != thread && clocks_.known(thread, missed.thread) < missed.clock) return false;
    const auto known = missed.what->find(block);
    return known != missed.what->end() && (*known->second)[std::size_t(of)] >= clock;
  });
}

bool BlockOrder::met_at(int thread, std::uintptr_t word, uint64_t block) {
  return any([&](const Acquired& acquired) {
    return acquired.word == word && acquired.what->contains(block) &&
           (acquired.thread == thread || clocks_.known(thread, acquired.thread) >= acquired.clock);
  });
}

bool BlockOrder::proxy_knows(int thread, uint64_t block, int of, uint32_t clock) {
  if (block == block_) return clocks_.known_to_proxy(thread, of, Proxied::global) >= clock;
  const auto index = std::size_t(of);
  return any([&](const Acquired& acquired) {
    const auto known = acquired.what->find(block);
    if (known == acquired.what->end()) return false;
    // Either the publishing thread has fenced, or a thread that has acquired the knowledge since then has.
    return ((*known->second)[clocks_.width() + index] >= clock &&
            clocks_.known(thread, acquired.thread) >= acquired.clock) ||
           ((*known->second)[index] >= clock &&
            clocks_.known_to_proxy(thread, acquired.thread, Proxied::global) >= acquired.clock);
  });
}

}  // namespace flashbook::sim
