//| # The problem of chapter 3's kernels
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/convert.h"
#include "common/ptx/math.h"

namespace flashbook::fa1 {

//| ## The problem, as a kernel sees it
//|
//| As in chapter 1, a few numbers are passed to the kernel by value. There is no $S$ in device memory any
//| more, so its stride is gone. The host multiplies the scale by $\log_2 e$, so that $e^x$ becomes $2^x$, a
//| single GPU instruction. The scale is applied to the scores, not to Q. In Q, every element would be rounded
//| after scaling, and where all products of a score are equal, these errors would all have the same sign.
//|
//| ![Which keys a query sees if there are as many keys as queries, more, or
//| fewer](../../docs/figures/visible_keys.svg)

/// The shape of one launch. `head` below counts batch and heads together: head = b * heads + h.
struct Problem {
  int seqlen_q;  ///< query rows per head
  int seqlen_k;  ///< keys per head
  int group;     ///< query heads per key head (1 without grouped queries)
  bool causal;
  float scale_log2;  ///< scale of the scores, times log2(e)

  /// Returns how many keys query row `query` sees. The causal mask is aligned to the bottom right.
  __device__ int visible_keys(int query) const {
    if (!causal) return seqlen_k;
    const int visible = query + 1 + seqlen_k - seqlen_q;
    return visible < 0 ? 0 : visible < seqlen_k ? visible : seqlen_k;
  }

  /// Returns how many keys the rows of a tile see together: its last row sees the most.
  __device__ int visible_keys_of_tile(int first_query, int rows) const {
    const int last = first_query + rows - 1;
    return visible_keys(last < seqlen_q ? last : seqlen_q - 1);
  }

  /// Returns the position of row `query` of a head's Q or O, in rows. It has 64 bits, because a tensor may
  /// have more than 2^31 elements.
  __device__ int64_t q_row(int head, int query) const { return int64_t(head) * seqlen_q + query; }

  /// Returns the position of row `key` of the K or V that serves `head`, in rows. Since heads = group *
  /// kv_heads, one division finds the key head for any batch.
  __device__ int64_t k_row(int head, int key) const { return int64_t(head / group) * seqlen_k + key; }
};

//| ## Two numbers for a row
//|
//| Once a tile's scores for a row are known, all three steps apply the merge rule of [chapter
//| 2](../02_online_softmax/README.md#the-idea-a-state-of-two-numbers), in base 2. As in chapter 2, a row that
//| has seen only masked keys has the maximum $-\infty$, and 0 is subtracted instead, so that
//| $-\infty - (-\infty)$ never occurs.
//|
//| Example: a row's maximum so far is 3, and its maximum in the tile is 5. The new maximum is 5, and every
//| sum so far is multiplied by $2^{3-5} = 1/4$. If the tile's maximum is 2, the row keeps 3, and the
//| correction is $2^0 = 1$.

/// A row's new maximum, and the correction of everything that is relative to the old one.
struct Merge {
  float row_max;     ///< the new maximum, in base 2: largest score * scale * log2(e)
  float subtracted;  ///< subtracted from each score: the maximum, or 0 if no key was seen yet
  float correction;  ///< factor for the row's sum and its O
};

/// Merges the maximum of a tile's scores into the maximum of the row.
__device__ __forceinline__ Merge merge(float row_max, float tile_max) {
  const float new_max = fmaxf(row_max, tile_max);
  const float subtracted = new_max == -INFINITY ? 0.0f : new_max;
  // Before the first visible key this is 2^-inf = 0: there is nothing to keep.
  return {new_max, subtracted, exp2_approx(row_max - subtracted)};
}

/// Returns the factor that turns the finished sum of weighted values into O; 0 for a row that saw no key.
__device__ __forceinline__ float inverse_sum(float row_sum) { return row_sum > 0.0f ? 1.0f / row_sum : 0.0f; }

/// Returns the natural log-sum-exp. A row that saw no key has -inf + log2(0) = -inf, as it should.
__device__ __forceinline__ float log_sum_exp(float row_max, float row_sum) {
  return (row_max + log2f(row_sum)) * kLn2;
}

//| ## Vectors of elements

/// Neighbouring elements, moved by one load or store of at most 16 bytes.
template <typename T, int kCount>
struct __align__(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Vector {
  T element[kCount];
};

template <typename T, int kCount>
__device__ __forceinline__ Vector<T, kCount> load_vector(const T* address) {
  return *reinterpret_cast<const Vector<T, kCount>*>(address);
}

template <typename T, int kCount>
__device__ __forceinline__ void store_vector(T* address, const Vector<T, kCount>& vector) {
  *reinterpret_cast<Vector<T, kCount>*>(address) = vector;
}

}  // namespace flashbook::fa1
