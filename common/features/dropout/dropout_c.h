#pragma once
#include <stdint.h>

/** Drops probabilities; the same seed drops the same ones. */
enum { FLASHBOOK_DROPOUT = 11 };
typedef struct FlashbookDropout {
  int32_t kind;
  float dropout; /**< the fraction that is dropped, 0 to below 1; 0: none */
  uint64_t seed;
} FlashbookDropout;
