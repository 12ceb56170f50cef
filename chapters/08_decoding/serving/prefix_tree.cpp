#include "chapters/08_decoding/serving/prefix_tree.h"

#include <algorithm>
#include <utility>

namespace flashbook::decoding {

PrefixTree::~PrefixTree() { drop_all(root_); }

void PrefixTree::drop_all(Node& node) {
  for (int page : node.pages) pool_.drop(page);
  for (auto& [key, child] : node.children) drop_all(*child);
}

PrefixTree::Place PrefixTree::walk(std::span<const int> tokens, std::vector<int>* pages) {
  const std::size_t rows = pool_.rows();
  ++clock_;
  Node* node = &root_;
  for (int depth = 0;;) {
    node->last_use = clock_;
    int matched = 0;
    for (; matched < int(node->pages.size()) && (depth + 1) * rows <= tokens.size(); ++matched, ++depth) {
      if (!std::ranges::equal(tokens.subspan(depth * rows, rows),
                              std::span(node->tokens).subspan(matched * rows, rows)))
        break;
      if (pages) pages->push_back(node->pages[matched]);
    }
    if (matched < int(node->pages.size()) || (depth + 1) * rows > tokens.size())
      return {node, matched, depth};
    const auto next = tokens.subspan(depth * rows, rows);
    const auto child = node->children.find({next.begin(), next.end()});
    if (child == node->children.end()) return {node, matched, depth};
    node = child->second.get();
  }
}

std::vector<int> PrefixTree::find(std::span<const int> tokens) {
  std::vector<int> pages;
  walk(tokens, &pages);
  return pages;
}

/// Splits a node: it keeps its first `pages`, and a new child takes the rest of its run and its children.
void PrefixTree::split(Node& node, int pages) {
  const std::ptrdiff_t rows = pool_.rows();
  auto rest = std::make_unique<Node>();
  rest->tokens.assign(node.tokens.begin() + pages * rows, node.tokens.end());
  rest->pages.assign(node.pages.begin() + pages, node.pages.end());
  rest->children = std::exchange(node.children, {});
  rest->last_use = node.last_use;
  node.tokens.resize(pages * rows);
  node.pages.resize(pages);
  std::vector<int> key(rest->tokens.begin(), rest->tokens.begin() + rows);
  node.children.emplace(std::move(key), std::move(rest));
}

void PrefixTree::insert(std::span<const int> tokens, std::span<const int> pages) {
  const std::ptrdiff_t rows = pool_.rows();
  const auto whole = int(std::min(tokens.size() / rows, pages.size()));
  const Place place = walk(tokens.first(whole * rows), nullptr);
  if (place.depth == whole) return;
  if (place.matched < int(place.node->pages.size())) split(*place.node, place.matched);

  auto leaf = std::make_unique<Node>();
  leaf->tokens.assign(tokens.begin() + place.depth * rows, tokens.begin() + whole * rows);
  leaf->pages.assign(pages.begin() + place.depth, pages.begin() + whole);
  leaf->last_use = clock_;
  for (int page : leaf->pages) pool_.hold(page);
  pages_ += int(leaf->pages.size());
  std::vector<int> key(leaf->tokens.begin(), leaf->tokens.begin() + rows);
  place.node->children.emplace(std::move(key), std::move(leaf));
}

/// Finds the least recently used leaf whose last page has no other holder.
void PrefixTree::find_oldest(Node& parent, Leaf& oldest) const {
  for (auto& [key, child] : parent.children) {
    if (!child->children.empty())
      find_oldest(*child, oldest);
    else if (pool_.holders(child->pages.back()) == 1 &&
             (!oldest.node || child->last_use < oldest.node->last_use))
      oldest = {&parent, child.get()};
  }
}

int PrefixTree::evict(int wanted) {
  int freed = 0;
  while (freed < wanted) {
    Leaf oldest;
    find_oldest(root_, oldest);
    if (!oldest.node) break;
    std::vector<int>& run = oldest.node->pages;
    while (freed < wanted && !run.empty() && pool_.holders(run.back()) == 1) {
      pool_.drop(run.back());
      run.pop_back();
      ++freed;
    }
    oldest.node->tokens.resize(run.size() * pool_.rows());
    if (run.empty())
      std::erase_if(oldest.parent->children, [&](auto& child) { return child.second.get() == oldest.node; });
  }
  pages_ -= freed;
  return freed;
}

}  // namespace flashbook::decoding
