#include "chapters/08_decoding/serving/sequence.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace flashbook::decoding {
namespace {

int pages_for(int tokens, int rows) { return tokens / rows + (tokens % rows > 0); }

}  // namespace

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(other.pool_), pages_(std::exchange(other.pages_, {})), length_(std::exchange(other.length_, 0)) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(pages_, other.pages_);
  std::swap(length_, other.length_);
  return *this;
}

Sequence Sequence::fork() const {
  Sequence twin(*pool_);
  twin.pages_ = pages_;
  twin.length_ = length_;
  for (int page : pages_) pool_->hold(page);
  return twin;
}

std::optional<PageCopy> Sequence::append(int tokens) {
  if (tokens < 0) throw std::invalid_argument("append " + std::to_string(tokens) + " tokens: give 0 or more");
  const int rows_used = length_ % pool_->rows();
  const bool copies = tokens > 0 && rows_used > 0 && pool_->holders(pages_.back()) > 1;
  const int pages = pages_for(length_ + tokens, pool_->rows()), fresh = pages - int(pages_.size());
  if (fresh + copies > pool_->free_pages())
    throw OutOfPages(fresh + copies, pool_->free_pages(), pool_->pages());

  pages_.reserve(pages);
  std::optional<PageCopy> copy;
  if (copies) {
    copy = {.from = pages_.back(), .to = pool_->take(), .rows = rows_used};
    pool_->drop(std::exchange(pages_.back(), copy->to));
  }
  for (int i = 0; i < fresh; ++i) pages_.push_back(pool_->take());
  length_ += tokens;
  return copy;
}

void Sequence::reset(int length) {
  if (length < 0 || length > length_)
    throw std::invalid_argument("keep " + std::to_string(length) + " tokens of " + std::to_string(length_) +
                                ": give 0 to " + std::to_string(length_));
  const int pages = pages_for(length, pool_->rows());
  while (int(pages_.size()) > pages) {
    pool_->drop(pages_.back());
    pages_.pop_back();
  }
  length_ = length;
}

void set_sequences(Spec& spec, const PagePool& pool, std::span<const Sequence* const> sequences) {
  spec.batch = int(sequences.size());
  spec.seqlen_k = 1;
  spec.visibility.lengths.clear();
  for (const Sequence* sequence : sequences) {
    spec.seqlen_k = std::max(spec.seqlen_k, sequence->length());
    spec.visibility.lengths.push_back(sequence->length());
  }
  const int pages = pages_for(spec.seqlen_k, pool.rows());
  spec.paging = {.rows = pool.rows(), .pages = pool.pages(), .table = {}};
  for (const Sequence* sequence : sequences) {
    spec.paging.table.insert(spec.paging.table.end(), sequence->pages().begin(), sequence->pages().end());
    spec.paging.table.resize(spec.paging.table.size() + pages - sequence->pages().size(), -1);
  }
}

}  // namespace flashbook::decoding
