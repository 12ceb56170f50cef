#pragma once
#include <stdint.h>

/** Which elements share a scale (common/features/types/e4m3.h). */
typedef enum FlashbookScaling {
  FLASHBOOK_SCALE_OF_TENSOR = 0, /**< all elements: [1] */
  FLASHBOOK_SCALE_OF_HEAD = 1,   /**< a key head and the query heads that read it: [batch, kv_heads] */
  FLASHBOOK_SCALE_OF_BLOCK = 2   /**< 64 rows of Q: [batch, heads, blocks]; 128 of K or V: [batch, kv_heads,
                                  * blocks]; with pages [pages, kv_heads] */
} FlashbookScaling;

/** Scales of tensors in e4m3. With a 16-bit dtype, only k and v are FLASHBOOK_E4M3, as in a cache. An
 * element's value is its encoding times its scale, plus the mean of its column. Each array may be null. A
 * latent key has 656 bytes instead: 512 elements, a float for every 128 of them, which is their scale, and 64
 * elements in dtype; and k has strides in bytes. */
enum { FLASHBOOK_SCALES = 16 };
typedef struct FlashbookScales {
  int32_t kind;
  int32_t scaling;      /**< a FlashbookScaling */
  const float* q_scale; /**< > 0, in the layout of `scaling`; null: all 1 */
  const float* k_scale; /**< like q_scale */
  const float* v_scale; /**< like q_scale */
  const float* k_mean;  /**< [batch, kv_heads, head_dim], 16-byte aligned; null: all 0 */
  const float* v_mean;  /**< like k_mean */
} FlashbookScales;
