/**
 * \file
 * libflashbook.so: every chapter's kernels behind a C interface, for Python, PyTorch or any other program.
 *
 * All pointers in FlashbookTensors are memory of the calling thread's current device, and the stream is one
 * of that device's. A call returns when its kernels are launched; the caller waits for the stream. No call
 * throws; each returns a FlashbookStatus or says in its comment how it fails, and flashbook_last_error() says
 * why.
 *
 * Any thread may call at any time. Two calls in flight, on two streams or two devices, may share q, k and v.
 * They must not share o, lse or the workspace, where a call counts the tiles that it has handed out. On one
 * stream a call begins when the one before is over, so there all of it may be used again.
 *
 * Structs that a caller fills begin with their size, and grow at their end: a program that was built with an
 * older header goes on working. Set what you do not use to 0.
 */
#ifndef FLASHBOOK_H
#define FLASHBOOK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a call came to. The numbers are also the exit codes of the book's programs. */
typedef enum FlashbookStatus {
  FLASHBOOK_OK = 0,
  FLASHBOOK_DEVICE_ERROR = 1, /**< CUDA or the kernel failed */
  FLASHBOOK_BAD_ARGUMENT =
      2, /**< no such chapter or step, a shape it cannot run, a pointer that is null or not aligned */
  FLASHBOOK_HARDWARE_MISSING = 77, /**< there is no GPU, or not the one that is needed */
} FlashbookStatus;

/** Element type of Q, K, V and O; O of FLASHBOOK_E4M3 is BF16. */
typedef enum FlashbookType {
  FLASHBOOK_F32 = 0,
  FLASHBOOK_F16 = 1,
  FLASHBOOK_BF16 = 2,
  FLASHBOOK_E4M3 = 3
} FlashbookType;

/** Which elements of FLASHBOOK_E4M3 share a scale (common/attention/shape.h). */
typedef enum FlashbookScaling {
  FLASHBOOK_SCALE_OF_TENSOR = 0, /**< all: [1] */
  FLASHBOOK_SCALE_OF_HEAD = 1,   /**< those of a key head, and the queries that read it: [batch, kv_heads] */
  FLASHBOOK_SCALE_OF_BLOCK =
      2 /**< 64 rows of Q: [batch, heads, blocks]; 128 of K or V: [batch, kv_heads, blocks] */
} FlashbookScaling;

/** Elements from one batch entry, head and row of a tensor to the next; a row's elements lie side by side.
 * Multiples of 16 bytes. All 0: [batch, heads, seqlen, head_dim] without gaps. */
typedef struct FlashbookStrides {
  int64_t batch;
  int64_t head;
  int64_t row;
} FlashbookStrides;

/** One attention problem, as chapters know it (common/attention/shape.h). */
typedef struct FlashbookShape {
  size_t size; /**< sizeof(FlashbookShape) */
  int32_t batch;
  int32_t heads;    /**< query heads */
  int32_t kv_heads; /**< divides heads */
  int32_t seqlen_q;
  int32_t seqlen_k;
  int32_t head_dim; /**< 64, 128 or 256, in chapters 5, 7 (steps 3 to 6), 8 (steps 4 to 6, 9 and 10) and 9
                     * any multiple of 8 up to 256; of latent attention 576: o has 512 columns, and v is not
                     * read */
  int32_t causal;   /**< 0 or 1; bottom-right aligned */
  int32_t dtype;    /**< a FlashbookType */
  float scale;      /**< factor on the scores, > 0: 1 / sqrt(head_dim). Chapters 1 to 5 are right for every
                       score that is finite in float, before and after it; the others up to 65536 in size,
                       which no call looks at */
  FlashbookStrides q, k, v, o; /**< chapters 1 to 4 take 0 only */
  int32_t scaling;             /**< a FlashbookScaling; of FLASHBOOK_E4M3, also in a cache, else 0 */
  int32_t reserved;            /**< 0 */
} FlashbookShape;

/** Device pointers. Those of q, k, v and o are multiples of 16. */
typedef struct FlashbookTensors {
  size_t size; /**< sizeof(FlashbookTensors) */
  const void* q;
  const void* k;
  const void* v;
  void* o;
  float* lse; /**< [batch, heads, seqlen_q], natural log-sum-exp */
  /* Chapters 5, 8 and 9, but for gradients, keep counters in the workspace: all of it is 0 before the first
     call with it. Every call leaves the counters 0, and nothing else may write there in between: another
     chapter or a gradient needs memory of its own, or what it leaves must be cleared. */
  void* workspace; /**< flashbook_workspace_bytes() bytes, 256-byte aligned; may be null if that is 0 */
  /* Of FLASHBOOK_E4M3, each may be null. An element of Q, K or V stands for its encoding times its scale,
     plus the mean of its column. */
  const float* q_scale; /**< as the shape's scaling says, > 0; null: all are 1 */
  const float* k_scale; /**< likewise */
  const float* v_scale; /**< likewise */
  const float* k_mean;  /**< [batch, kv_heads, head_dim], 16-byte aligned; null: all are 0 */
  const float* v_mean;  /**< likewise */
} FlashbookTensors;

/** Where the keys of a decoder lie: sequences of their own lengths, in pages or not. */
typedef struct FlashbookCache {
  size_t size; /**< sizeof(FlashbookCache) */
  /** Device memory, [batch]: keys of each sequence, 0 ... seqlen_k. Null: all have seqlen_k. */
  const int32_t* lengths;
  /** Device memory, [batch, ceil(seqlen_k / page_rows)]: the page of a sequence's next keys, 0 ... pages - 1;
   * entries behind a sequence's length are not read. Null: no pages. */
  const int32_t* page_table;
  int32_t page_rows; /**< keys of a page: a power of two, or at least seqlen_k: then a sequence is a page */
  int32_t pages;     /**< k and v are [pages, kv_heads, page_rows, head_dim] */
  /** The first keys of all sequences, whole pages, which lie in the same pages; 0: none. Every query sees all
   * of them. Chapter 8's step 6 reads them once, without a mask. */
  int32_t shared_keys;
  /** 1: k and v are FLASHBOOK_E4M3, whatever dtype says of q and o. The shape's scaling, k_scale and v_scale
   * are theirs; those of pages are [batch, kv_heads] or, in place of blocks, [pages, kv_heads]. Chapter 8's
   * step 8. Else 0. */
  int32_t e4m3;
  /** Device memory, [batch]: rows of a sequence's part of k and v before its first key, which are not read.
   * Null: none. A sequence is then of one piece, or one page. */
  const int32_t* paddings;
  /** Device memory, [batch + 1], ascending from 0 to `queries`: where each sequence's queries begin, if they
   * have unequally many. q and o are then [queries, heads, head_dim] or the reverse, by the strides of heads
   * and rows; lse is [heads, queries]; and the shape's seqlen_q is the most queries of a sequence. Null: all
   * have seqlen_q. */
  const int32_t* first_query;
  int32_t queries; /**< all together; 0 without first_query */
  /** 1: each sequence's keys are read by one block, so that its result has the same bits alone and in any
   * batch; a small batch then leaves multiprocessors idle. 0: keys are split as that is fastest. */
  int32_t splits;
} FlashbookCache;

/** What a query may see, and functions on scores (chapters 8 and 9; common/attention/visibility.h and
 * shape.h). All that is given restricts. Which step takes what, the step says. Pointers are device memory. */
typedef struct FlashbookMask {
  size_t size;          /**< sizeof(FlashbookMask) */
  int32_t window_left;  /**< keys before a query's own; -1: all */
  int32_t window_right; /**< keys after it; -1: all, 0: causal */
  int32_t sinks;        /**< the first keys, seen whatever window_left says */
  int32_t prefix;       /**< the first keys, seen whatever the window says */
  /** [documents + 1] each, ascending from 0: where the documents' queries and keys begin (cu_seqlens). */
  int32_t documents;       /**< 0: one, and the pointers are null */
  int32_t slope_sequences; /**< how many sequences have slopes of their own, see there; 0: none has */
  const int32_t* first_query;
  const int32_t* first_key;
  const int32_t* columns; /**< FlashMask's intervals, [batch, column_heads, seqlen_k, bounds]; null: none */
  int32_t column_heads;   /**< 1, or kv_heads */
  int32_t bounds;         /**< 1, 2 or 4 */
  /** Listed blocks of block_queries by block_keys: row r has key_blocks[first_block[r]] ... in ascending
   * order. */
  int32_t block_queries; /**< 0: no blocks, and the pointers are null */
  int32_t block_keys;
  const int32_t* first_block;
  const int32_t* key_blocks;
  /** ALiBi's, [heads]; null: none. With slope_sequences [slope_sequences, heads], a row a document, or of
   * none a batch entry. */
  const float* slopes;
  float softcap;        /**< 0: none */
  int32_t bias_reach;   /**< 0 if there is no bias */
  const float* bias;    /**< by distance, [heads, 2 * bias_reach + 1]; null: none */
  uint64_t seed;        /**< of the dropout */
  float dropout;        /**< the part of the probabilities that is left out; 0: none */
  int32_t pair_heads;   /**< 1, or heads; 0 if there are no pairs */
  const uint8_t* pairs; /**< a byte a pair, 0: hidden, [batch, pair_heads, seqlen_q, seqlen_k]; null: none */
  const float* sink_logits; /**< [heads], a score of no key: e^sink_logit is a term of every row's sum. -inf:
                               none; null: none at all. `sinks` are keys, and have nothing to do with it */
} FlashbookMask;

/** What a backward pass has besides FlashbookTensors, of which all but the workspace are input to it. Device
 * pointers, multiples of 16. */
typedef struct FlashbookGradients {
  size_t size;     /**< sizeof(FlashbookGradients) */
  const void* d_o; /**< [batch, heads, seqlen_q, head_dim], the gradient that comes in */
  void* dq;        /**< [batch, heads, seqlen_q, head_dim] */
  void* dk;        /**< [batch, kv_heads, seqlen_k, head_dim], the sum over the query heads of a group */
  void* dv;        /**< likewise */
  FlashbookStrides d_o_strides, dq_strides, dk_strides, dv_strides; /**< as in FlashbookShape */
  float* d_bias; /**< [heads, 2 * bias_reach + 1], the sum over the batch, if the mask has a bias and this is
                    wanted; null: it is not. Chapter 9's step 6 */
  const float* d_lse; /**< [batch, heads, seqlen_q], the gradient of the log-sum-exp, if the loss reads it;
                         null: all are 0. Not read where a query sees no key. Chapters 7 and 9 */
} FlashbookGradients;

/** A chapter, for those who list them. The texts live as long as the library. */
typedef struct FlashbookChapter {
  int32_t number;
  int32_t steps;     /**< steps are numbered 1 ... steps */
  int32_t on_device; /**< 0: the chapter is CPU code. Its pointers are the host's memory, it has no stream,
                        and a call returns when O is there */
  const char* name;  /**< "01_naive_attention" */
  const char* title; /**< "Naive attention" */
} FlashbookChapter;

/** How many chapters there are. */
int32_t flashbook_chapter_count(void);

/** Describes the chapter of that place, 0 ... flashbook_chapter_count() - 1. Returns a FlashbookStatus. */
int flashbook_chapter(int32_t place, FlashbookChapter* chapter);

/** A step in a few words, "a tile of registers"; null if there is no such chapter or step. */
const char* flashbook_step_name(int chapter, int step);

/** Launches a step on `stream` (a cudaStream_t; null is the default stream). Returns a FlashbookStatus. */
int flashbook_attention(int chapter, int step, const FlashbookShape* shape, const FlashbookTensors* tensors,
                        void* stream);

/** The same against a cache: a step of a chapter that decodes (8). With pages the strides of k and v go from
 * one page to the next in place of batch entries. Null for a cache without lengths and pages. Returns a
 * FlashbookStatus. */
int flashbook_decode(int chapter, int step, const FlashbookShape* shape, const FlashbookCache* cache,
                     const FlashbookTensors* tensors, void* stream);

/** The same under a mask: windows, a softcap, slopes and sink logits, in chapter 8's steps 4 to 6, 9 and 10;
 * windows in chapter 9's step 8. The shape's `causal` is 0, since the mask says it. Returns a
 * FlashbookStatus. */
int flashbook_masked_decode(int chapter, int step, const FlashbookShape* shape, const FlashbookCache* cache,
                            const FlashbookMask* mask, const FlashbookTensors* tensors, void* stream);

/** The gradients: a step of a chapter of the backward pass (7). Returns a FlashbookStatus. */
int flashbook_backward(int chapter, int step, const FlashbookShape* shape, const FlashbookTensors* tensors,
                       const FlashbookGradients* gradients, void* stream);

/** Attention under a mask: a step of a chapter that knows masks (9). The shape's `causal` is 0, since the
 * mask says it. Returns a FlashbookStatus. */
int flashbook_masked(int chapter, int step, const FlashbookShape* shape, const FlashbookMask* mask,
                     const FlashbookTensors* tensors, void* stream);

/** The gradients under a mask: chapter 9's step 6, or step 7, which has the same bits every time. Returns a
 * FlashbookStatus. */
int flashbook_masked_backward(int chapter, int step, const FlashbookShape* shape, const FlashbookMask* mask,
                              const FlashbookTensors* tensors, const FlashbookGradients* gradients,
                              void* stream);

/** flashbook_workspace_bytes of either. */
int64_t flashbook_masked_workspace_bytes(int chapter, int step, const FlashbookShape* shape,
                                         const FlashbookMask* mask);

/** flashbook_workspace_bytes of a cache: -1 also for pages that the step cannot read. */
int64_t flashbook_decode_workspace_bytes(int chapter, int step, const FlashbookShape* shape,
                                         const FlashbookCache* cache);

/** The same under a mask. */
int64_t flashbook_masked_decode_workspace_bytes(int chapter, int step, const FlashbookShape* shape,
                                                const FlashbookCache* cache, const FlashbookMask* mask);

/** Device memory in bytes that the step needs beyond its inputs and outputs, or -1 if it cannot run the
 * shape. */
int64_t flashbook_workspace_bytes(int chapter, int step, const FlashbookShape* shape);

/** The cost model: floating-point operations of the problem, and bytes that the step moves to and from device
   memory. Returns a FlashbookStatus. */
int flashbook_cost(int chapter, int step, const FlashbookShape* shape, double* flops, double* memory_bytes);

/** Device memory, 256-byte aligned, for a program that has no other way to it: in a build for the simulator
 * this is where its kernels' pointers must lead, and the host reads and writes it. Null if there is none. */
void* flashbook_allocate(size_t bytes);

/** Gives what flashbook_allocate returned back; null is fine. */
void flashbook_free(void* memory);

/** Why this thread's last call failed, in one line that names the cure; empty if it did not fail. */
const char* flashbook_last_error(void);

/** What compiled the kernels: "nvcc 13.0.88". */
const char* flashbook_toolkit(void);

/** The version of the library: "0.4.0". */
const char* flashbook_version(void);

#ifdef __cplusplus
}
#endif
#endif
