#pragma once
#include <stdint.h>

/** Scores become softcap * tanh(score / softcap). */
enum { FLASHBOOK_SOFTCAP = 7 };
typedef struct FlashbookSoftcap {
  int32_t kind;
  float softcap; /**< 0: none */
} FlashbookSoftcap;
