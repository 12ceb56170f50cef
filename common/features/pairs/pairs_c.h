#pragma once
#include <stdint.h>

/** A mask that lists every pair. */
enum { FLASHBOOK_PAIRS = 6 };
typedef struct FlashbookPairs {
  int32_t kind;
  int32_t heads;        /**< 1, or heads */
  const uint8_t* pairs; /**< [batch, heads, seqlen_q, seqlen_k], 0 if hidden */
} FlashbookPairs;
