#pragma once
#include <stdint.h>

/** Scores without keys: e^sink_logit is added to every row's sum. FlashbookWindow's sinks, in contrast, are
 * keys. */
enum { FLASHBOOK_SINKS = 10 };
typedef struct FlashbookSinks {
  int32_t kind;
  int32_t unused;           /**< 0 */
  const float* sink_logits; /**< [heads]; -inf: none for this head */
} FlashbookSinks;
