#pragma once
#include <stdint.h>

/** A term for each distance that is added to the scores; beyond `reach` the outermost one applies. */
enum { FLASHBOOK_BIAS = 9 };
typedef struct FlashbookBias {
  int32_t kind;
  int32_t reach;     /**< 0 or more */
  const float* bias; /**< [heads, 2 * reach + 1]: the bias of a key d after a query's own at reach + d */
} FlashbookBias;
