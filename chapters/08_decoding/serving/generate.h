/// \file
/// The generation loop: a token, its key and value into the cache, attention, the next token.
#pragma once
#include <vector>

#include "chapters/08_decoding/serving/decoder.h"
#include "chapters/08_decoding/serving/sequence.h"
#include "common/app/chapter.h"

namespace flashbook::decoding {

/// Keys and values of one layer in the kernels' memory, in pages: [pages, kv_heads, rows, head_dim], bf16.
class CacheMemory {
 public:
  CacheMemory(const PagePool& pool, device::Place place);

  /// Performs a copy that Sequence::append requests.
  void copy(const PageCopy& copy);
  /// Writes the key and the value of one token, [kv_heads, head_dim] each.
  void write(const Sequence& sequence, int place, const std::vector<float>& key,
             const std::vector<float>& value);

  const void* keys() const { return k_.data(); }
  const void* values() const { return v_.data(); }

 private:
  int rows_;
  device::Buffer k_, v_;
};

/// The generated tokens, and their cost.
struct Generated {
  std::vector<int> tokens;
  int64_t keys = 0;  ///< keys computed per key head, and as many values
  double seconds = 0;
};

/// Generates `tokens` tokens after `first`, with the attention of a chapter's `step`, which must support
/// pages. Without a cache, keys and values of all tokens so far are recomputed for each. Throws OutOfPages.
Generated generate(const Chapter& chapter, int step, const Decoder& decoder, PagePool& pool, int first,
                   int tokens, bool with_cache);

/// Computes attention for the query of the sequence's last token, [heads, head_dim].
std::vector<float> attend(const Chapter& chapter, int step, const PagePool& pool, const CacheMemory& memory,
                          const Sequence& sequence, const std::vector<float>& query);

/// Returns the shape of that attention: one query, the sequence's pages.
Spec spec_of(const PagePool& pool, const Sequence& sequence);

}  // namespace flashbook::decoding
