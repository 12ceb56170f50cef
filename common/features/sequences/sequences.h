/// \file
/// Sequences of different lengths: in a batch, or packed one after another.
#pragma once
#include <cstdint>

#include "common/features/array.h"

namespace flashbook {

struct Spec;

/// Sequences packed one after another (FlashAttention's cu_seqlens): a query sees keys of its document only,
/// and windows and prefixes count within it. A document may have no queries or no keys. None: one document.
struct Documents {
  Array<int> first_query = {};  ///< [documents + 1], ascending from 0 to seqlen_q
  Array<int> first_key = {};    ///< [documents + 1], ascending from 0 to seqlen_k

  bool operator==(const Documents&) const = default;
};

/// A document, or a batch entry with its length: windows and prefixes count within it.
struct Segment {
  int64_t first_query, queries;
  int64_t first_key, keys;

  int64_t own_key(int64_t query) const { return first_key + query - first_query + keys - queries; }
};

/// Returns the number of documents in a batch entry, at least one.
int document_count(const Spec& spec);
int document_of(const Spec& spec, int query);
Segment segment(const Spec& spec, int batch, int document);

/// Returns the number of sequences: documents, or otherwise batch entries.
int64_t sequences_of(const Spec& spec);
int sequence_of(const Spec& spec, int batch, int query);

/// Returns the key at the query's own place, aligned to the bottom right of its document: query + seqlen_k -
/// seqlen_q if there is one. Negative, or past the last key, if there is no such key.
int64_t own_key(const Spec& spec, int batch, int query);

}  // namespace flashbook
