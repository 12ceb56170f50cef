#pragma once
#include <stdint.h>

/** Lists of the keys that each query attends to, the same for all heads. */
enum { FLASHBOOK_INDICES = 18 };
typedef struct FlashbookIndices {
  int32_t kind;
  int32_t count;          /**< entries per list, at least 1 */
  const int32_t* indices; /**< [batch, seqlen_q, count]: keys in any order, 0 ... seqlen_k - 1; any other
                           * number is no key, and a key that is listed twice counts twice */
} FlashbookIndices;
