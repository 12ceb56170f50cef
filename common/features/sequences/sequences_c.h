#pragma once
#include <stdint.h>

/** The number of keys in each sequence of a batch. Windows are aligned to the last key. */
enum { FLASHBOOK_LENGTHS = 2 };
typedef struct FlashbookLengths {
  int32_t kind;
  int32_t unused;         /**< 0 */
  const int32_t* lengths; /**< [batch], 0 ... seqlen_k */
} FlashbookLengths;

/** Sequences packed one after another, which do not see each other (FlashAttention's cu_seqlens). The arrays
 * ascend from 0 to seqlen_q and seqlen_k. */
enum { FLASHBOOK_DOCUMENTS = 3 };
typedef struct FlashbookDocuments {
  int32_t kind;
  int32_t documents;          /**< at least 1 */
  const int32_t* first_query; /**< [documents + 1]: where each document's queries begin, and their end */
  const int32_t* first_key;   /**< [documents + 1]: the same for keys */
} FlashbookDocuments;
