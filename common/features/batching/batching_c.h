#pragma once
#include <stdint.h>

/** Sequences with different numbers of queries, at most seqlen_q. q and o are [queries, heads, head_dim] or
 * [heads, queries, head_dim], depending on the strides; lse is [heads, queries]. */
enum { FLASHBOOK_PACKED_QUERIES = 14 };
typedef struct FlashbookPackedQueries {
  int32_t kind;
  int32_t queries;            /**< total number */
  const int32_t* first_query; /**< [batch + 1], ascending from 0 to `queries` */
} FlashbookPackedQueries;

/** One block reads all keys of a sequence, so that its result has the same bits alone and in any batch. A
 * small batch then leaves multiprocessors idle. */
enum { FLASHBOOK_UNSPLIT = 15 };
typedef struct FlashbookUnsplit {
  int32_t kind;
  int32_t unused; /**< 0 */
} FlashbookUnsplit;
