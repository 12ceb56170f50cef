#pragma once
#include <stdint.h>

/** Rows before each sequence's first key, which are not read. A sequence must be contiguous, or one page. */
enum { FLASHBOOK_PADDINGS = 12 };
typedef struct FlashbookPaddings {
  int32_t kind;
  int32_t unused;          /**< 0 */
  const int32_t* paddings; /**< [batch] */
} FlashbookPaddings;

/** Keys and values in pages: k and v are [pages, kv_heads, page_rows, head_dim], and their batch strides are
 * the distances between pages. */
enum { FLASHBOOK_PAGES = 13 };
typedef struct FlashbookPages {
  int32_t kind;
  int32_t page_rows;   /**< keys per page: a power of two, or at least seqlen_k: one page per sequence */
  int32_t pages;       /**< number of pages, used or not */
  int32_t shared_keys; /**< leading keys that all sequences share, in the same whole pages; 0: none. Every
                        * query sees them all. A step may read them only once, if there is no mask */
  const int32_t* page_table; /**< [batch, ceil(seqlen_k / page_rows)]: each sequence's pages in order; entries
                              * after its length are not read */
} FlashbookPages;
