#pragma once
#include <stdint.h>

/** Visible blocks of block_queries by block_keys; other blocks are hidden, for all heads. */
enum { FLASHBOOK_BLOCKS = 4 };
typedef struct FlashbookBlocks {
  int32_t kind;
  int32_t block_queries;      /**< queries per block, at least 1 */
  int32_t block_keys;         /**< keys per block, at least 1 */
  int32_t unused;             /**< 0 */
  const int32_t* first_block; /**< [rows of blocks + 1]: where each row begins in key_blocks, and the end */
  const int32_t* key_blocks;  /**< the visible blocks of each row, in ascending order */
} FlashbookBlocks;
