// Compares the cache with a simple model that stores each sequence's tokens separately, without sharing.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>

#include "chapters/08_decoding/serving/prefix_tree.h"
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

  Tokens page(int page) const { return {keys_.begin() + page * rows_, keys_.begin() + (page + 1) * rows_}; }

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

TEST(PrefixTree, FindsWholePagesOfTheLongestPrefix) {
  PagePool pool(8, 2);
  PrefixTree tree(pool);
  Sequence sequence(pool);
  ASSERT_FALSE(sequence.append(7));
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7};
  tree.insert(tokens, sequence.pages());
  EXPECT_EQ(tree.pages(), 3) << "the fourth page is not full";
  const Tokens& pages = sequence.pages();
  EXPECT_EQ(tree.find(Tokens{1, 2, 3, 4, 9, 9}), Tokens({pages[0], pages[1]}));
  EXPECT_EQ(tree.find(Tokens{1, 2, 3}), Tokens({pages[0]}));
  EXPECT_EQ(tree.find(Tokens{1}), Tokens());
  EXPECT_EQ(tree.find(Tokens{2, 1}), Tokens());
}

/// Random operations on a cache and on the model of its contents.
class RandomCache {
 public:
  explicit RandomCache(unsigned seed)
      : random_(seed), pool_(24, 1 + int(seed % 5)), memory_(pool_), tree_(pool_) {}

  void step() {
    switch (pick(9)) {
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
      case 6:
        return end();
      case 7:
        return remember();
      default:
        return evict();
    }
  }

  void expect_as_in_the_model() {
    std::set<int> used;
    std::map<int, int> holders;
    for (const Known& known : sequences_) {
      EXPECT_EQ(memory_.read(known.sequence), known.tokens);
      for (int page : known.sequence.pages()) ++holders[page];
    }
    for (const auto& [page, count] : holders) {
      used.insert(page);
      EXPECT_GE(pool_.holders(page), count);
      EXPECT_LE(pool_.holders(page), count + 1) << "the tree contains each page once";
    }
    int of_tree_only = 0, of_tree = 0;
    for (int page = 0; page < pool_.pages(); ++page) {
      const bool in_tree = pool_.holders(page) > holders[page];
      of_tree += in_tree;
      of_tree_only += in_tree && !used.contains(page);
    }
    EXPECT_EQ(of_tree, tree_.pages());
    EXPECT_EQ(pool_.free_pages(), pool_.pages() - int(used.size()) - of_tree_only);
  }

  int refused() const { return refused_; }
  int copied() const { return copied_; }
  int shared() const { return shared_; }

  void end_all() {
    sequences_.clear();
    const int taken = pool_.pages() - pool_.free_pages();  // first: arguments are evaluated in any order
    EXPECT_EQ(tree_.evict(pool_.pages()), taken);
    EXPECT_EQ(pool_.free_pages(), pool_.pages());
  }

 private:
  struct Known {
    Sequence sequence;
    Tokens tokens;
  };

  int pick(int count) { return int(random_() % unsigned(count)); }
  /// Draws from only two tokens, so that prompts share prefixes.
  Tokens some_tokens(int most) {
    Tokens tokens(pick(most + 1));
    for (int& token : tokens) token = pick(2);
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
    const Tokens prompt = some_tokens(20);
    const Tokens pages = tree_.find(prompt);
    for (int i = 0; i < int(pages.size()); ++i)
      EXPECT_EQ(memory_.page(pages[i]),
                Tokens(prompt.begin() + i * pool_.rows(), prompt.begin() + (i + 1) * pool_.rows()));
    shared_ += int(pages.size());
    const auto known = std::ptrdiff_t(pages.size()) * pool_.rows();
    sequences_.push_back({Sequence(pool_, pages), Tokens(prompt.begin(), prompt.begin() + known)});
    append(sequences_.back(), Tokens(prompt.begin() + known, prompt.end()));
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
  void remember() {
    if (Known* known = some_sequence()) tree_.insert(known->tokens, known->sequence.pages());
  }
  void evict() {
    const int free = pool_.free_pages(), freed = tree_.evict(pick(4));
    EXPECT_EQ(pool_.free_pages(), free + freed);
  }

  std::mt19937 random_;
  PagePool pool_;
  Memory memory_;
  PrefixTree tree_;
  std::vector<Known> sequences_;
  int refused_ = 0, copied_ = 0, shared_ = 0;
};

TEST(Cache, RandomOperationsAgreeWithThePlainModel) {
  int refused = 0, copied = 0, shared = 0;
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
    shared += cache.shared();
  }
  // Every case occurred.
  EXPECT_GT(refused, 100);
  EXPECT_GT(copied, 100);
  EXPECT_GT(shared, 100);
}

}  // namespace
}  // namespace flashbook::decoding
