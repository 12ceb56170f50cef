/// \file
/// Sequences of different lengths: in a batch, or packed one after another.
#pragma once
#include <cstdint>

#include "common/features/array.h"

namespace flashbook {

struct Spec;

/// Sequences packed one after another (FlashAttention's cu_seqlens): a query sees only its document's keys,
/// and windows and prefixes are relative to it. A document may have no queries or keys. None: one document.
struct Documents {
  Array<int> first_query = {};  ///< [documents + 1], ascending from 0 to seqlen_q
  Array<int> first_key = {};    ///< [documents + 1], ascending from 0 to seqlen_k

  bool operator==(const Documents&) const = default;
};

/// A document, or a batch entry with its length, to which windows and prefixes are relative.
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

/// Returns the key at the query's own position, aligned to the bottom right of its document; without
/// documents it is query + seqlen_k - seqlen_q. Negative, or past the last key, if there is no such key.
int64_t own_key(const Spec& spec, int batch, int query);

}  // namespace flashbook
