//| # Step 4: tiles, vectors, all cores
//|
//| Step 3 needs no memory for scores, but it is slow: a chain of dependent additions for every score, a
//| library call for every exponential, a correction of all of O for every key, and a pass over all of K and V
//| for every single query.
//|
//| **Idea.** Do the single pass of step 3 tile by tile: 64 keys at a time for 64 queries. A tile of K and V
//| is loaded and widened to float once for 64 queries. The inner loops run over neighbouring elements, so
//| that they become vector instructions. And O is corrected once per tile instead of once per key.
//|
//| **Budget of a core**, in KB at head_dim 64 / 128 / 256: tiles of Q, K, V and O, 16 / 32 / 64 each, and
//| scores, 16. The total is 80 / 144 / 272, which fits into an L2 cache of 512 KB. The rows that an innermost
//| loop touches fit into the L1. On a GPU, the same tiles fit into shared memory and registers: replace
//| "core" with "block", and this is chapter 3.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>

#include "chapters/02_online_softmax/exp2.h"
#include "chapters/02_online_softmax/rows.h"
#include "chapters/02_online_softmax/tile.h"
#include "common/attention/parallel.h"
#include "common/attention/spec.h"

namespace flashbook {

constexpr int kRowsQ = 64;  // queries per tile: all of them use each number of K and V
constexpr int kRowsK = 64;  // keys per tile: 128 would need 416 KB at head_dim 256, most of an L2 cache

//| ## The tiles of a core
//|
//| One task is a tile of queries of one head. Its state is that of step 3 for one row, 64 times over: the
//| unfinished row of O, the running maximum and the running sum. K, V and the scores are those of one tile of
//| keys at a time.
//|
//| Row maxima are kept in base 2, where $e^x$ is $2^{x \log_2 e}$ and [`exp2_fast`](exp2.h) computes it. The
//| factor $\log_2 e$ is folded into the softmax scale for free. Both are applied to the scores, not to Q. In
//| Q, every scaled element would be rounded, and where all products of a score are equal, these errors would
//| all have the same sign.

/// The tiles of one task.
template <int kHeadDim>
struct alignas(64) Tiles {
  float q[kRowsQ][kHeadDim];
  float k_transposed[kHeadDim][kRowsK];  // so that the scores of neighbouring keys are adjacent
  float v[kRowsK][kHeadDim];
  float scores[kRowsQ][kRowsK];  // later overwritten by the weights
  float o[kRowsQ][kHeadDim];     // not yet divided by row_sum
  float row_max[kRowsQ];         // in base 2: largest score * log2(e)
  float row_sum[kRowsQ];         // the same number in both bases
};

//| ## The softmax of a tile
//|
//| This is the merge rule of step 2, with a whole tile as the incoming part. Keys that a query does not see
//| get the score $-\infty$, which the exponential turns into a weight of 0. So the loops have no branch, only
//| one `fill` before them.
//|
//| All keys of a tile may be masked, and so may those of all earlier tiles. Then the maximum is still
//| $-\infty$, and $-\infty - (-\infty)$ is NaN. Subtracting 0 instead gives the right result: the weights are
//| then $2^{-\infty} = 0$.

/// Turns one row of scores into weights, and merges the row's state with them.
template <int kHeadDim>
void softmax_row(float (&scores)[kRowsK], int visible, float scale_log2, float& row_max, float& row_sum,
                 float (&o)[kHeadDim]) {
  for (float& score : scores) score *= scale_log2;
  std::fill(scores + visible, scores + kRowsK, kMinusInfinity);
  const float new_max = std::max(row_max, max_of(scores));
  const float subtracted = new_max == kMinusInfinity ? 0 : new_max;  // never -inf - -inf
  const float correction =
      exp2_fast(row_max - subtracted);  // 0 before the first visible key: there is nothing to keep

  // The new weights are relative to the new maximum from the start, so only the old sums need a factor.
  for (float& score : scores) score = exp2_fast(score - subtracted);
  row_sum = row_sum * correction + sum_of(scores);
  row_max = new_max;
  for (float& element : o) element *= correction;  // before the tile's values are added
}

//| ## All tiles
//|
//| Tasks are independent: each writes its own rows of O, so the cores share only the inputs. The loop over
//| keys ends with the last key that the tile's last query sees, so under a square causal mask, about half of
//| all tiles are never loaded.

/// Attention, one tile of queries per task. Writes every row of O and of the log-sum-exp.
template <typename T, int kHeadDim>
void attention_blocked(const Spec& spec,
                       const T* q,  // [batch, heads, seqlen_q, kHeadDim]
                       const T* k,  // [batch, kv_heads, seqlen_k, kHeadDim]
                       const T* v,  // [batch, kv_heads, seqlen_k, kHeadDim]
                       T* o,        // [batch, heads, seqlen_q, kHeadDim]
                       float* lse)  // [batch, heads, seqlen_q]
{
  const int q_tiles = ceil_div(spec.seqlen_q, kRowsQ);
  const int heads_per_kv_head = spec.heads / spec.kv_heads;
  const float scale_log2 = spec.scale * std::numbers::log2e_v<float>;

  parallel_for(int64_t(spec.batch) * spec.heads * q_tiles, [&](int64_t task) {
    const int64_t head = task / q_tiles;
    const int64_t kv_head = head / heads_per_kv_head;
    const int first_query = int(task % q_tiles) * kRowsQ;
    const int queries = std::min(kRowsQ, spec.seqlen_q - first_query);
    const int64_t first_row = head * spec.seqlen_q + first_query;

    const auto tiles = std::make_unique<Tiles<kHeadDim>>();  // zeros: an empty O and empty sums
    std::fill_n(tiles->row_max, kRowsQ, kMinusInfinity);
    load_tile(q + first_row * kHeadDim, queries, tiles->q);

    const int visible_keys = spec.visible_keys(first_query + queries - 1);  // the last query sees the most
    for (int first_key = 0; first_key < visible_keys; first_key += kRowsK) {
      const int keys = std::min(kRowsK, spec.seqlen_k - first_key);
      const int64_t kv_offset = (kv_head * spec.seqlen_k + first_key) * kHeadDim;
      load_transposed_tile(k + kv_offset, keys, tiles->k_transposed);
      load_tile(v + kv_offset, keys, tiles->v);

      std::fill_n(&tiles->scores[0][0], kRowsQ * kRowsK, 0.0f);  // multiply_add adds to it
      multiply_add(tiles->q, tiles->k_transposed, queries, tiles->scores);
      for (int row = 0; row < queries; ++row) {
        // The causal diagonal cuts through some tiles. There, every row sees a different number of keys.
        const int visible = std::clamp(spec.visible_keys(first_query + row) - first_key, 0, kRowsK);
        softmax_row(tiles->scores[row], visible, scale_log2, tiles->row_max[row], tiles->row_sum[row],
                    tiles->o[row]);
      }
      multiply_add(tiles->scores, tiles->v, queries, tiles->o);  // by now, these are weights
    }

    for (int row = 0; row < queries; ++row) {
      const float row_sum = tiles->row_sum[row];
      const float inverse = row_sum == 0 ? 0 : 1 / row_sum;  // no key was seen: O is 0, not 0 / 0
      for (int d = 0; d < kHeadDim; ++d)
        o[(first_row + row) * kHeadDim + d] = from_float<T>(tiles->o[row][d] * inverse);
      // Back to base e; an empty row has -inf + log2(0), which is -inf as it should be.
      lse[first_row + row] = (tiles->row_max[row] + std::log2(row_sum)) * std::numbers::ln2_v<float>;
    }
  });
}

}  // namespace flashbook
