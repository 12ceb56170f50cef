#pragma once
#include <stdint.h>

/** For each key, intervals of queries that must not see it (common/features/intervals/intervals.h). */
enum { FLASHBOOK_INTERVALS = 5 };
typedef struct FlashbookIntervals {
  int32_t kind;
  int32_t heads;            /**< 1, or kv_heads */
  int32_t bounds;           /**< 1, 2 or 4 */
  int32_t unused;           /**< 0 */
  const int32_t* intervals; /**< [batch, heads, seqlen_k, bounds] */
} FlashbookIntervals;
