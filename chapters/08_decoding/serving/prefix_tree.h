/// \file
/// The prefixes that the cache knows: a radix tree over tokens (SGLang's RadixAttention, arXiv 2312.07104).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "chapters/08_decoding/serving/page_pool.h"

namespace flashbook::decoding {

/// Which pages have the keys and values of which tokens. Two prompts with a common beginning share a path
/// from the root. A node has a run of whole pages; partly filled pages are not remembered. The tree holds its
/// pages until evict() drops some that have no other holder. The pool outlives the tree.
class PrefixTree {
 public:
  explicit PrefixTree(PagePool& pool) : pool_(pool) {}
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;

  /// Returns the pages of the longest known prefix of `tokens`. Before the next call, make a Sequence of
  /// them, which holds them.
  std::vector<int> find(std::span<const int> tokens);

  /// Remembers the whole pages of a sequence: `pages[i]` has tokens i * rows ... i * rows + rows - 1. For
  /// tokens that are already known, the known pages stay, and those of the sequence are not held.
  void insert(std::span<const int> tokens, std::span<const int> pages);

  /// Frees up to `wanted` pages that only the tree holds: the least recently used leaf
  /// first, each from its end. Returns how many.
  int evict(int wanted);

  /// Returns how many pages the tree holds.
  int pages() const { return pages_; }

 private:
  struct Node {
    std::vector<int> tokens = {};  // rows of a page * pages.size()
    std::vector<int> pages = {};
    std::map<std::vector<int>, std::unique_ptr<Node>> children = {};  // by the tokens of their first page
    uint64_t last_use = 0;
  };
  /// Where a walk along tokens ends: `matched` pages into the run of `node`, after `depth` pages in all.
  struct Place {
    Node* node;
    int matched, depth;
  };

  Place walk(std::span<const int> tokens, std::vector<int>* pages);
  void split(Node& node, int pages);
  /// A leaf and its parent.
  struct Leaf {
    Node* parent = nullptr;
    Node* node = nullptr;
  };
  void find_oldest(Node& parent, Leaf& oldest) const;
  void drop_all(Node& node);

  PagePool& pool_;
  Node root_;
  int pages_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace flashbook::decoding
