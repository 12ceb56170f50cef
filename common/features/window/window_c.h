#pragma once
#include <stdint.h>

/** A band of keys around each query's own, which is key i + seqlen_k - seqlen_q for query i. A causal mask is
 * {.left = -1, .right = 0}. */
enum { FLASHBOOK_WINDOW = 1 };
typedef struct FlashbookWindow {
  int32_t kind;
  int32_t left;   /**< number of keys before a query's own; -1: all */
  int32_t right;  /**< number of keys after a query's own; -1: all */
  int32_t sinks;  /**< number of leading keys that `left` does not hide */
  int32_t prefix; /**< number of leading keys that neither side hides */
  int32_t unused; /**< 0 */
} FlashbookWindow;
