#pragma once
#include <stdint.h>

/** Distances, in elements, between batch entries, heads and rows of a tensor; a row is contiguous. Each must
 * be a multiple of 16 bytes. All 0 means contiguous [batch, heads, seqlen, head_dim]. */
typedef struct FlashbookStrides {
  int64_t batch, head, row;
} FlashbookStrides;

/** The strides of all tensors, for chapters 5 to 9. Only flashbook_backward reads those of gradients. */
enum { FLASHBOOK_LAYOUT = 17 };
typedef struct FlashbookLayout {
  int32_t kind;
  int32_t unused; /**< 0 */
  FlashbookStrides q, k, v, o, d_o, dq, dk, dv;
} FlashbookLayout;
