/**
 * \file
 * libflashbook.so: every chapter's kernels behind a C interface, for Python, PyTorch or any other program.
 *
 * All pointers in FlashbookTensors are memory of the calling thread's current device, and the stream belongs
 * to that device. A call returns after launching its kernels; the caller synchronises the stream. Calls never
 * throw. Each returns a FlashbookStatus or documents how it fails, and flashbook_last_error() has the reason.
 *
 * All functions are thread-safe. Calls in flight on different streams or devices may share q, k and v, but
 * not o, lse or the workspace, which holds a counter of tiles. Calls on the same stream run one after the
 * other, so they may share everything.
 *
 * Structs begin with their size and grow only at their end, so programs built with an older header keep
 * working. Set fields that you do not use to 0.
 */
#ifndef FLASHBOOK_H
#define FLASHBOOK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The result of a call. The values are also the exit codes of the book's programs. */
typedef enum FlashbookStatus {
  FLASHBOOK_OK = 0,
  FLASHBOOK_DEVICE_ERROR = 1, /**< CUDA or the kernel failed */
  FLASHBOOK_BAD_ARGUMENT =
      2, /**< no such chapter or step, an unsupported shape, or a null or misaligned pointer */
  FLASHBOOK_HARDWARE_MISSING = 77, /**< no GPU, or not the required one */
} FlashbookStatus;

/** The element type of Q, K, V and O; with FLASHBOOK_E4M3, O is BF16. */
typedef enum FlashbookType {
  FLASHBOOK_F32 = 0,
  FLASHBOOK_F16 = 1,
  FLASHBOOK_BF16 = 2,
  FLASHBOOK_E4M3 = 3
} FlashbookType;

/** Which elements of FLASHBOOK_E4M3 share a scale (common/attention/spec.h). */
typedef enum FlashbookScaling {
  FLASHBOOK_SCALE_OF_TENSOR = 0, /**< all elements: [1] */
  FLASHBOOK_SCALE_OF_HEAD = 1,   /**< a key head and the query heads that read it: [batch, kv_heads] */
  FLASHBOOK_SCALE_OF_BLOCK =
      2 /**< 64 rows of Q: [batch, heads, blocks]; 128 of K or V: [batch, kv_heads, blocks] */
} FlashbookScaling;

/** Distances, in elements, between batch entries, heads and rows of a tensor; a row is contiguous. Each must
 * be a multiple of 16 bytes. All 0 means contiguous [batch, heads, seqlen, head_dim]. */
typedef struct FlashbookStrides {
  int64_t batch;
  int64_t head;
  int64_t row;
} FlashbookStrides;

/** One attention problem (common/attention/spec.h). */
typedef struct FlashbookShape {
  size_t size; /**< sizeof(FlashbookShape) */
  int32_t batch;
  int32_t heads;    /**< query heads */
  int32_t kv_heads; /**< divides heads */
  int32_t seqlen_q;
  int32_t seqlen_k;
  int32_t head_dim; /**< 64, 128 or 256, in chapters 5, 7 (steps 3 to 6), 8 (steps 4 to 6, 9 and 10) and 9
                     * any multiple of 8 up to 256; 576 for latent attention, where o has 512 columns and v
                     * is not read */
  int32_t causal;   /**< 0 or 1: a causal mask, bottom-right aligned */
  int32_t dtype;    /**< a FlashbookType */
  float scale;      /**< factor of the scores, > 0, usually 1 / sqrt(head_dim). Chapters 1 to 5 support all
                       scores that are finite in float before and after scaling; the others support
                       magnitudes up to 65536, which is not checked */
  FlashbookStrides q, k, v, o; /**< chapters 1 to 4 support only 0 */
  int32_t scaling;             /**< a FlashbookScaling, for FLASHBOOK_E4M3 tensors and caches, else 0 */
  int32_t value_dim; /**< columns of v and o: a multiple of 8 up to 256; 0: head_dim. Other widths than
                      * head_dim: only steps 2 and 3 of 09_masks */
} FlashbookShape;

/** Device pointers. q, k, v and o are 16-byte aligned. */
typedef struct FlashbookTensors {
  size_t size; /**< sizeof(FlashbookTensors) */
  const void* q;
  const void* k;
  const void* v;
  void* o;
  float* lse; /**< [batch, heads, seqlen_q], natural log-sum-exp */
  /* Chapters 5, 8 and 9, except for gradients, keep counters in the workspace. Clear it before the first
     call; every call leaves the counters at 0. If another chapter or a gradient uses the memory in
     between, clear it again. */
  void* workspace; /**< flashbook_workspace_bytes() bytes, 256-byte aligned; may be null if that is 0 */
  /* For FLASHBOOK_E4M3; each may be null. An element's value is its encoding times its scale, plus the mean
     of its column. */
  const float* q_scale; /**< > 0, in the layout of the shape's scaling; null: all 1 */
  const float* k_scale; /**< like q_scale */
  const float* v_scale; /**< like q_scale */
  const float* k_mean;  /**< [batch, kv_heads, head_dim], 16-byte aligned; null: all 0 */
  const float* v_mean;  /**< like k_mean */
} FlashbookTensors;

/** A decoder's KV cache: sequences, each with its own length, paged or contiguous. */
typedef struct FlashbookCache {
  size_t size; /**< sizeof(FlashbookCache) */
  /** Device memory, [batch]: number of keys in each sequence, 0 ... seqlen_k. Null: all have seqlen_k. */
  const int32_t* lengths;
  /** Device memory, [batch, ceil(seqlen_k / page_rows)]: the pages of each sequence in order, 0 ... pages -
   * 1; entries after a sequence's length are not read. Null: no pages. */
  const int32_t* page_table;
  int32_t
      page_rows; /**< keys per page: a power of two, or at least seqlen_k, so that a sequence is one page */
  int32_t pages; /**< k and v are [pages, kv_heads, page_rows, head_dim] */
  /** Number of leading keys that all sequences share, in the same whole pages; 0: none. Every query sees them
   * all. A step may read them only once, if there is no mask. */
  int32_t shared_keys;
  /** 1: k and v are FLASHBOOK_E4M3 (dtype describes q and o), with the shape's scaling, k_scale and v_scale.
   * Scales of pages are [batch, kv_heads], or [pages, kv_heads] in place of blocks. Else 0. */
  int32_t e4m3;
  /** Device memory, [batch]: rows before a sequence's first key in k and v, which are not read. Null: none.
   * Each sequence must then be contiguous, or one page. */
  const int32_t* paddings;
  /** Device memory, [batch + 1], ascending from 0 to `queries`: where each sequence's queries begin, if their
   * numbers differ. q and o are then [queries, heads, head_dim] or [heads, queries, head_dim], depending on
   * the strides; lse is [heads, queries]; and seqlen_q is the largest number of queries in a sequence. Null:
   * all have seqlen_q. */
  const int32_t* first_query;
  int32_t queries; /**< total number; 0 without first_query */
  /** 1: one block reads all keys of a sequence, so that its result has the same bits alone and in any batch;
   * a small batch then leaves multiprocessors idle. 0: keys are split for speed. */
  int32_t splits;
} FlashbookCache;

/** Masks and score functions (chapters 8 and 9; common/features/list.h). A key is visible
 * if every given mask allows it. Unsupported combinations return FLASHBOOK_BAD_ARGUMENT. Pointers are device
 * memory. */
typedef struct FlashbookMask {
  size_t size;          /**< sizeof(FlashbookMask) */
  int32_t window_left;  /**< number of keys before a query's own; -1: all */
  int32_t window_right; /**< number of keys after a query's own; -1: all, 0: causal */
  int32_t sinks;        /**< number of leading keys that window_left does not hide */
  int32_t prefix;       /**< number of leading keys that the window does not hide */
  /** [documents + 1] each, ascending from 0: where the documents' queries and keys begin (cu_seqlens). */
  int32_t documents;       /**< number of packed documents; 0: none, and the pointers are null */
  int32_t slope_sequences; /**< number of rows in slopes; 0: all sequences share them */
  const int32_t* first_query;
  const int32_t* first_key;
  const int32_t* columns; /**< FlashMask's intervals, [batch, column_heads, seqlen_k, bounds]; null: none */
  int32_t column_heads;   /**< 1, or kv_heads */
  int32_t bounds;         /**< 1, 2 or 4 */
  /** Visible blocks of block_queries by block_keys: those of row r start at key_blocks[first_block[r]], in
   * ascending order. */
  int32_t block_queries; /**< queries per block; 0: no blocks, and the pointers are null */
  int32_t block_keys;
  const int32_t* first_block;
  const int32_t* key_blocks;
  /** ALiBi's slopes, [heads], or [slope_sequences, heads] with a row per document or, without documents, per
   * batch entry; null: none. */
  const float* slopes;
  float softcap;      /**< scores become softcap * tanh(score / softcap); 0: none */
  int32_t bias_reach; /**< 0 if there is no bias */
  const float* bias;  /**< indexed by distance, [heads, 2 * bias_reach + 1]; null: none */
  uint64_t seed;      /**< seed of the dropout */
  float dropout;      /**< the fraction of probabilities that is dropped; 0: none */
  int32_t pair_heads; /**< 1, or heads; 0 if there are no pairs */
  const uint8_t*
      pairs; /**< one byte per pair, 0 if hidden, [batch, pair_heads, seqlen_q, seqlen_k]; null: none */
  const float* sink_logits; /**< [heads], scores without keys: e^sink_logit is added to every row's sum.
                               -inf: none for this head; null: none. Unrelated to `sinks`, which are keys */
} FlashbookMask;

/** A backward pass's tensors in addition to FlashbookTensors, which are its inputs, except the workspace.
 * Device pointers, 16-byte aligned. */
typedef struct FlashbookGradients {
  size_t size;     /**< sizeof(FlashbookGradients) */
  const void* d_o; /**< [batch, heads, seqlen_q, head_dim], the incoming gradient */
  void* dq;        /**< [batch, heads, seqlen_q, head_dim] */
  void* dk;        /**< [batch, kv_heads, seqlen_k, head_dim], the sum over the query heads of a group */
  void* dv;        /**< like dk */
  FlashbookStrides d_o_strides, dq_strides, dk_strides, dv_strides; /**< as in FlashbookShape */
  float* d_bias; /**< [heads, 2 * bias_reach + 1], summed over the batch, if the mask has a bias; null if not
                    wanted. Chapter 9's step 6 */
  const float* d_lse; /**< [batch, heads, seqlen_q], the gradient of the log-sum-exp, if the loss uses it;
                         null: all 0. Not read for queries that see no key. Chapters 7 and 9 */
} FlashbookGradients;

/** A chapter's description. The strings are valid as long as the library is loaded. */
typedef struct FlashbookChapter {
  int32_t number;
  int32_t steps;     /**< number of steps, which are numbered from 1 */
  int32_t on_device; /**< 0: the chapter is CPU code; pointers are host memory, the stream is ignored, and a
                        call returns when O is complete */
  const char* name;  /**< "01_naive_attention" */
  const char* title; /**< "Naive attention" */
} FlashbookChapter;

/** Returns the number of chapters. */
int32_t flashbook_chapter_count(void);

/** Describes the chapter at this index, 0 ... flashbook_chapter_count() - 1. Returns a FlashbookStatus. */
int flashbook_chapter(int32_t place, FlashbookChapter* chapter);

/** Returns the number of the step with this slug, such as "register_tile"; 0 if there is none. Steps are
 * numbered as in the chapter's table, so a number can change when a step is inserted; a slug does not. */
int flashbook_step(int chapter, const char* slug);

/** Return a step's slug, and its name, such as "a tile of registers"; null if there is no such step. */
const char* flashbook_step_slug(int chapter, int step);
const char* flashbook_step_name(int chapter, int step);

/** Launches a step on `stream` (a cudaStream_t; null is the default stream). Returns a FlashbookStatus. */
int flashbook_attention(int chapter, int step, const FlashbookShape* shape, const FlashbookTensors* tensors,
                        void* stream);

/** Launches a decoding step with a cache. With pages, the batch strides of k and v are
 * the distances between pages. `cache` may be null if there are no lengths and no pages. Returns a
 * FlashbookStatus. */
int flashbook_decode(int chapter, int step, const FlashbookShape* shape, const FlashbookCache* cache,
                     const FlashbookTensors* tensors, void* stream);

/** The same with a mask. The shape's `causal` must be 0; use window_right. Returns a FlashbookStatus. */
int flashbook_masked_decode(int chapter, int step, const FlashbookShape* shape, const FlashbookCache* cache,
                            const FlashbookMask* mask, const FlashbookTensors* tensors, void* stream);

/** Computes gradients, with a step of the backward pass. Returns a FlashbookStatus. */
int flashbook_backward(int chapter, int step, const FlashbookShape* shape, const FlashbookTensors* tensors,
                       const FlashbookGradients* gradients, void* stream);

/** Computes attention with a mask, if the step supports it. The shape's `causal` must be 0; use window_right.
 * Returns a FlashbookStatus. */
int flashbook_masked(int chapter, int step, const FlashbookShape* shape, const FlashbookMask* mask,
                     const FlashbookTensors* tensors, void* stream);

/** Computes gradients with a mask. Returns a FlashbookStatus. */
int flashbook_masked_backward(int chapter, int step, const FlashbookShape* shape, const FlashbookMask* mask,
                              const FlashbookTensors* tensors, const FlashbookGradients* gradients,
                              void* stream);

/** Returns the workspace size for either of these, like flashbook_workspace_bytes. */
int64_t flashbook_masked_workspace_bytes(int chapter, int step, const FlashbookShape* shape,
                                         const FlashbookMask* mask);

/** Returns the workspace size with a cache; also returns -1 if the step cannot read the pages. */
int64_t flashbook_decode_workspace_bytes(int chapter, int step, const FlashbookShape* shape,
                                         const FlashbookCache* cache);

/** Returns the workspace size with a cache and a mask. */
int64_t flashbook_masked_decode_workspace_bytes(int chapter, int step, const FlashbookShape* shape,
                                                const FlashbookCache* cache, const FlashbookMask* mask);

/** Returns the number of bytes of device memory that the step needs in addition to its inputs and outputs;
 * -1 if it cannot run the shape. */
int64_t flashbook_workspace_bytes(int chapter, int step, const FlashbookShape* shape);

/** Evaluates the cost model: the number of floating-point operations, and of bytes that the step moves to and
 * from device memory. Returns a FlashbookStatus. */
int flashbook_cost(int chapter, int step, const FlashbookShape* shape, double* flops, double* memory_bytes);

/** Allocates device memory, 256-byte aligned, for programs without their own allocator. In a build for the
 * simulator, all pointers passed to kernels must come from here, and the host can access the memory. Null
 * if out of memory. */
void* flashbook_allocate(size_t bytes);

/** Frees memory from flashbook_allocate; null is allowed. */
void flashbook_free(void* memory);

/** Returns why this thread's last call failed, and how to fix it, in one line; empty if it succeeded. */
const char* flashbook_last_error(void);

/** Returns the compiler of the kernels: "nvcc 13.0.88". */
const char* flashbook_toolkit(void);

/** Returns the version of the library, such as "1.2.3". */
const char* flashbook_version(void);

#ifdef __cplusplus
}
#endif
#endif
