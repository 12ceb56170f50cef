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
 * A problem is its sizes and its features: masks, score functions, a cache. Each feature has a struct of its
 * own in common/features, which begins with its kind. The features follow the sizes in memory:
 *
 *     struct {
 *       FlashbookProblem sizes;
 *       FlashbookWindow window;
 *     } causal = {{sizeof causal.sizes, .batch = 1, .heads = 16, ..., .features = 1},
 *                 {FLASHBOOK_WINDOW, .left = -1, .right = 0}};
 *     flashbook_attention(5, 5, &causal.sizes, &tensors, stream);
 *
 * Set fields that you do not use to 0. FlashbookProblem, FlashbookTensors and FlashbookGradients begin with
 * their size, and the library rejects any size but its own. The struct of a kind never changes.
 */
#ifndef FLASHBOOK_H
#define FLASHBOOK_H

#include <stddef.h>
#include <stdint.h>

#include "common/features/alibi/alibi_c.h"
#include "common/features/batching/batching_c.h"
#include "common/features/bias/bias_c.h"
#include "common/features/blocks/blocks_c.h"
#include "common/features/dropout/dropout_c.h"
#include "common/features/indices/indices_c.h"
#include "common/features/intervals/intervals_c.h"
#include "common/features/pages/pages_c.h"
#include "common/features/pairs/pairs_c.h"
#include "common/features/sequences/sequences_c.h"
#include "common/features/sinks/sinks_c.h"
#include "common/features/softcap/softcap_c.h"
#include "common/features/strides/strides_c.h"
#include "common/features/types/types_c.h"
#include "common/features/window/window_c.h"

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

/** The sizes of an attention problem, followed in memory by its features, without gaps, in any order and each
 * at most once. Without features: full attention, contiguous tensors. */
typedef struct FlashbookProblem {
  size_t size; /**< sizeof(FlashbookProblem) */
  int32_t batch;
  int32_t heads;    /**< query heads */
  int32_t kv_heads; /**< divides heads */
  int32_t seqlen_q;
  int32_t seqlen_k;
  int32_t head_dim;  /**< 64, 128 or 256, in chapters 5, 7 (steps 3 to 6), 8 (steps 4 to 6, 9 and 10) and 9
                      * any multiple of 8 up to 256; 576 for latent attention, where o has 512 columns and v
                      * is not read */
  int32_t value_dim; /**< columns of v and o: a multiple of 8 up to 256; 0: head_dim. Other widths than
                      * head_dim: steps 2 and 3 of 09_masks, and with head_dim 136 to 192 and value_dim up to
                      * 128 its steps 6 and 7 */
  int32_t dtype;     /**< a FlashbookType */
  float scale;       /**< factor of the scores, > 0, usually 1 / sqrt(head_dim). Chapters 1 to 5 support all
                        scores that are finite in float before and after scaling; the others support
                        magnitudes up to 65536, which is not checked */
  int32_t features;  /**< the number of features that follow */
} FlashbookProblem;

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
} FlashbookTensors;

/** A backward pass's tensors in addition to FlashbookTensors, which are its inputs, except the workspace.
 * Device pointers, 16-byte aligned. */
typedef struct FlashbookGradients {
  size_t size;     /**< sizeof(FlashbookGradients) */
  const void* d_o; /**< [batch, heads, seqlen_q, value_dim], the incoming gradient */
  void* dq;        /**< [batch, heads, seqlen_q, head_dim] */
  void* dk;        /**< [batch, kv_heads, seqlen_k, head_dim], the sum over the query heads of a group */
  void* dv;        /**< [batch, kv_heads, seqlen_k, value_dim], likewise */
  float*
      d_bias; /**< like FlashbookBias's bias, summed over the batch; null if not wanted. Chapter 9's step 6 */
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

/** Launches a step for the forward pass or for decoding on `stream` (a cudaStream_t; null is the default
 * stream). Features that the step does not support are rejected. Returns a FlashbookStatus. */
int flashbook_attention(int chapter, int step, const FlashbookProblem* problem,
                        const FlashbookTensors* tensors, void* stream);

/** The same for a step of the backward pass, which computes gradients. */
int flashbook_backward(int chapter, int step, const FlashbookProblem* problem,
                       const FlashbookTensors* tensors, const FlashbookGradients* gradients, void* stream);

/** Returns the number of bytes of device memory that the step needs in addition to its inputs and outputs;
 * -1 if it cannot run the problem. The features' pointers are not read. */
int64_t flashbook_workspace_bytes(int chapter, int step, const FlashbookProblem* problem);

/** Evaluates the cost model: the number of floating-point operations, and of bytes that the step moves to and
 * from device memory. Features with arrays, except for scales, are rejected, since the cost may depend on
 * the contents. Returns a FlashbookStatus. */
int flashbook_cost(int chapter, int step, const FlashbookProblem* problem, double* flops,
                   double* memory_bytes);

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
