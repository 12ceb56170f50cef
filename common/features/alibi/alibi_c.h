#pragma once
#include <stdint.h>

/** ALiBi subtracts slope * distance from the scores. */
enum { FLASHBOOK_ALIBI = 8 };
typedef struct FlashbookAlibi {
  int32_t kind;
  int32_t sequences;   /**< documents, or without documents the batch; 0: all share one row of slopes */
  const float* slopes; /**< [heads], or [sequences, heads] */
} FlashbookAlibi;
