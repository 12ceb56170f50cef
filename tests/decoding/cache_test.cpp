// Compares the cache with a simple model that stores each sequence's tokens separately, without sharing.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <vector>

#include "chapters/08_decoding/serving/sequence.h"

namespace flashbook::decoding {
namespace {

using Tokens = std::vector<int>;

constexpr int kNobody = -1;

/// The memory of a cache whose keys are the tokens themselves.
class Memory {
 public:
  explicit Memory(const PagePool& pool) : rows_(pool.rows()), keys_(pool.pages() * pool.rows(), kNobody) {}

  /// Writes keys and values, as their owner does after Sequence::append.
  void write(const Sequence& sequence, const std::optional<PageCopy>& copy, const Tokens& tokens) {
    if (copy) std::copy_n(keys_.begin() + copy->from * rows_, copy->rows, keys_.begin() + copy->to * rows_);
    for (int i = 0; i < int(tokens.size()); ++i)
      keys_[row(sequence, sequence.length() - int(tokens.size()) + i)] = tokens[i];
  }

  Tokens read(const Sequence& sequence) const {
    Tokens tokens;
    for (int key = 0; key < sequence.length(); ++key) tokens.push_back(keys_[row(sequence, key)]);
    return tokens;
  }

 private:
  int row(const Sequence& sequence, int key) const {
    return sequence.pages()[key / rows_] * rows_ + key % rows_;
  }

  int rows_;
  Tokens keys_;
};

void append(Memory& memory, Sequence& sequence, const Tokens& tokens) {
  const std::optional<PageCopy> copy = sequence.append(int(tokens.size()));
  memory.write(sequence, copy, tokens);
}

TEST(Sequence, AForkCopiesTheLastPageWhenItIsWritten) {
  PagePool pool(4, 4);
  Memory memory(pool);
  Sequence first(pool);
  append(memory, first, {0, 1, 2, 3, 4, 5});
  Sequence second = first.fork();
  EXPECT_EQ(pool.free_pages(), 2) << "a fork takes no pages";
  const std::optional<PageCopy> copy = second.append(1);
  ASSERT_TRUE(copy);
  EXPECT_EQ(*copy, (PageCopy{.from = first.pages()[1], .to = second.pages()[1], .rows = 2}));
  memory.write(second, copy, {9});
  EXPECT_FALSE(first.append(1)) << "the first sequence no longer shares its last page";
  memory.write(first, {}, {7});
  EXPECT_EQ(memory.read(first), Tokens({0, 1, 2, 3, 4, 5, 7}));
  EXPECT_EQ(memory.read(second), Tokens({0, 1, 2, 3, 4, 5, 9}));
}

/// Random operations on a cache and on the model of its contents.
class RandomCache {
 public:
  explicit RandomCache(unsigned seed) : random_(seed), pool_(24, 1 + int(seed % 5)), memory_(pool_) {}

  void step() {
    switch (pick(7)) {
      case 0:
        return start();
      case 1:
      case 2:
      case 3:
        return extend();
      case 4:
        return fork();
      case 5:
        return cut();
      default:
        return end();
    }
  }

  void expect_as_in_the_model() {
    std::map<int, int> holders;
    for (const Known& known : sequences_) {
      EXPECT_EQ(memory_.read(known.sequence), known.tokens);
      for (int page : known.sequence.pages()) ++holders[page];
    }
    for (const auto& [page, count] : holders) EXPECT_EQ(pool_.holders(page), count);
    EXPECT_EQ(pool_.free_pages(), pool_.pages() - int(holders.size()));
  }

  int refused() const { return refused_; }
  int copied() const { return copied_; }

  void end_all() {
    sequences_.clear();
    EXPECT_EQ(pool_.free_pages(), pool_.pages());
  }

 private:
  struct Known {
    Sequence sequence;
    Tokens tokens;
  };

  int pick(int count) { return int(random_() % unsigned(count)); }
  Tokens some_tokens(int most) {
    Tokens tokens(pick(most + 1));
    for (int& token : tokens) token = pick(1000);
    return tokens;
  }
  Known* some_sequence() { return sequences_.empty() ? nullptr : &sequences_[pick(int(sequences_.size()))]; }

  void append(Known& known, const Tokens& tokens) {
    const int length = known.sequence.length(), free = pool_.free_pages();
    const Tokens pages = known.sequence.pages();
    try {
      const std::optional<PageCopy> copy = known.sequence.append(int(tokens.size()));
      memory_.write(known.sequence, copy, tokens);
      known.tokens.insert(known.tokens.end(), tokens.begin(), tokens.end());
      copied_ += copy.has_value();
    } catch (const OutOfPages& error) {
      ++refused_;
      EXPECT_GT(error.needed, error.free);
      EXPECT_EQ(pool_.free_pages(), free);
      EXPECT_EQ(known.sequence.length(), length);
      EXPECT_EQ(known.sequence.pages(), pages);
    }
  }

  void start() {
    sequences_.push_back({Sequence(pool_), {}});
    append(sequences_.back(), some_tokens(20));
  }
  void extend() {
    if (Known* known = some_sequence()) append(*known, some_tokens(6));
  }
  void fork() {
    if (Known* known = some_sequence()) {
      Known twin = {known->sequence.fork(), known->tokens};
      sequences_.push_back(std::move(twin));
    }
  }
  void cut() {
    if (Known* known = some_sequence()) {
      known->tokens.resize(pick(int(known->tokens.size()) + 1));
      known->sequence.reset(int(known->tokens.size()));
    }
  }
  void end() {
    if (sequences_.empty()) return;
    std::swap(*some_sequence(), sequences_.back());
    sequences_.pop_back();
  }

  std::mt19937 random_;
  PagePool pool_;
  Memory memory_;
  std::vector<Known> sequences_;
  int refused_ = 0, copied_ = 0;
};

TEST(Cache, RandomOperationsAgreeWithThePlainModel) {
  int refused = 0, copied = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomCache cache(seed);
    for (int step = 0; step < 400; ++step) {
      cache.step();
      cache.expect_as_in_the_model();
      if (::testing::Test::HasFailure()) FAIL() << "at step " << step;
    }
    cache.end_all();
    refused += cache.refused();
    copied += cache.copied();
  }
  // Every case occurred.
  EXPECT_GT(refused, 100);
  EXPECT_GT(copied, 100);
}

}  // namespace
}  // namespace flashbook::decoding
