//| # What models add: windows, functions on scores, and sinks
//|
//| Many models do more than let a query attend to every key of its cache. The first Mistral 7B, Gemma and
//| gpt-oss give some or all layers a *window*, the last 128 to 4096 keys. Gemma 2 caps its scores. MPT
//| subtracts a slope times the distance from them (ALiBi). And gpt-oss learns a *sink logit* for each head: a
//| score that belongs to no key, takes weight, and contributes no value.
//|
//| All of these go into a plan with more members than that of steps 4 to 6. The kernel takes either plan as a
//| template parameter and calls it in a few places. The plain plan answers with constants, so its kernel has
//| no additional instruction.
//|
//| | switch | what it decides | where | the plain plan's answer |
//| | --- | --- | --- | --- |
//| | `kWindow` | `first_key_of`: before which key is nothing read | each segment, in all warps | 0 |
//| | `kWindow` | `rows_before`: where in its part of the cache a sequence begins | the producer | 0 |
//| | `kWindow`, `kFunctions` | `change`: what becomes of 16 keys' scores | after Q K^T | not called |
//| | `kRagged` | `rows_of`, `rows_at`, `items_of`, ...: how many queries a sequence has, and where | the plan, and wherever rows are read or stored | as many each |
//| | `kSinks` | `finished`: a row's final result | where a merged row is stored | not called |
//| | `kPadded` | `columns`: how many of a tile's columns tensors have | wherever rows are read or stored | all |
//|
//| ![A sequence's keys, of which a window at the end is cut into tiles and dealt out to blocks; what lies
//| before it is not read; a sink comes in where parts are merged](../../docs/figures/decode_rules.svg)
#pragma once
#include "chapters/08_decoding/narrow_tile.cuh"

namespace flashbook::decoding {

/// A plan, and the rules of its launch. Without functions (`kFunctions_`) scores stay as they are.
/// `kPadded_`: tensors have fewer columns than tiles.
template <bool kFunctions_, bool kPadded_ = false>
struct Rules : Plan {
  static constexpr bool kWindow = true, kFunctions = kFunctions_, kSinks = true, kRagged = true;
  static constexpr bool kPadded = kPadded_;
  static constexpr int kNoLimit = 1 << 30;  ///< `left` of a launch without a window

  int left = kNoLimit;  ///< keys that a query sees before its own
  int right = 0;        ///< keys after it; at most as many as there are queries, since there are no more keys
  int align = 1;        ///< a copy begins at a multiple of this, a power of two: it must not leave its page
  const int* paddings = nullptr;  ///< [batch], rows of a sequence's part of the cache before its first key
  const int* first_query =
      nullptr;                   ///< [batch + 1], where each sequence's queries begin; null: all have as many
  int tile_rows = 0;             ///< rows per tile of the kernel
  const float* sinks = nullptr;  ///< [heads], -inf if a head has none
  const float* slopes = nullptr;  ///< [heads], or [batch, heads]
  float softcap_factor = 0;       ///< -2 log2(e) scale / c; 0: no softcap
  float slope_factor = 0;         ///< factor on slopes, because scores are later multiplied by scale_log2
  float score_offset = 0;         ///< -c, which is left out of all scores; 0 without a softcap
  int slopes_of_batch = 0;        ///< `heads` if each sequence has its own slopes
  int head_dim = 0;               ///< the tensors' head dimension, if kPadded

  //| ## Which keys are read
  //|
  //| The last query's own key is the sequence's last, and the first query sees furthest back: `left` keys
  //| before its own. So only the last `left` + $S_q$ keys of a sequence are read. Tiles are counted from the
  //| first of them. A window of 1024 keys is eight tiles ($d = 128$) of a cache of any length, and only these
  //| are distributed: the window of a long sequence is as much work as that of a short one.
  //|
  //| With pages a copy loads a page or a piece of one, so the first tile begins at a multiple of a copy's
  //| keys. That loads up to a page minus one key in vain.
  /// Returns the first key that is read in a sequence of `length` keys.
  __device__ int first_key_of(const Problem& problem, int batch, int length) const {
    return max(length - queries_of(problem, batch) - left, 0) & -align;
  }

  /// Returns how many of the keys from there on no query sees: those that a copy loads before the window.
  /// They may be NaN.
  __device__ int hidden_keys(const Problem& problem, int batch, int length) const {
    return max(length - queries_of(problem, batch) - left, 0) & (align - 1);
  }

  /// Rows before a sequence's first key in its part of the cache.
  __device__ int rows_before(int batch) const { return paddings == nullptr ? 0 : paddings[batch]; }

  //| ## Ragged queries
  //|
  //| A server decodes most sequences while it reads the next chunk of some prompt: one query here, hundreds
  //| there. Their rows are packed one sequence after another, and `first_query` stores where each begins. A
  //| sequence then has as many tiles of rows as its own queries fill, so a short one does not pay for a long
  //| one. In tensors of packed queries a sequence is not a batch entry but begins at a row, whose number
  //| replaces that of the batch entry, with strides to match.
  /// Returns the number of queries of a sequence.
  __device__ int queries_of(const Problem& problem, int batch) const {
    return first_query == nullptr ? problem.seqlen_q : first_query[batch + 1] - first_query[batch];
  }
  __device__ int rows_of(const Problem& problem, int pack) const {
    return problem.pack * queries_of(problem, pack / problem.packs);
  }
  __device__ int row_tiles_of(const Problem& problem, int batch) const {
    return (problem.pack * queries_of(problem, batch) + tile_rows - 1) / tile_rows;
  }
  __device__ int items_of(const Problem& problem, int batch) const {
    return problem.packs * row_tiles_of(problem, batch);
  }
  __device__ int rounds_of(const Problem& problem, int batch) const {
    return items_of(problem, batch) / team;
  }
  __device__ Pack rows_at(const Problem& problem, int pack) const {
    Pack of = problem.pack_of(pack);
    if (first_query != nullptr) of.batch = first_query[of.batch];
    return of;
  }

  //| ## Functions on scores
  //|
  //| The functions are those of chapter 9's step 5, in FlashAttention's order. A softcap, $c \tanh(s / c)$,
  //| is $2c / (1 + e^{-2s/c}) - c$: the factor $2c$ is merged into the scale, and the constant $-c$, which
  //| does not affect the softmax, is added to the log-sum-exp at the end.
  /// Applies the functions to eight scores of rows `row` and `row` + 8 of a pack, of 16 keys from `first_key`
  /// on, and hides keys outside the window.
  __device__ void change(float* scores, const Problem& problem, const Segment& segment, int row,
                         int first_key) const {
    const int first_own = segment.length - queries_of(problem, segment.pack / problem.packs);  // of query 0
    if constexpr (kFunctions) {
      if (softcap_factor != 0) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          scores[i] = __fdividef(1.0f, 1.0f + exp2_approx(scores[i] * softcap_factor));
      }
      //| ALiBi subtracts slope times distance. The slope has been divided by the scale, because the softmax
      //| will multiply by it. A thread's two rows may belong to two heads, so each has its own slope.
      if (slopes != nullptr) {
        const int first_head =
            segment.pack % problem.packs * problem.pack + segment.pack / problem.packs * slopes_of_batch;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float slope = slopes[first_head + (row + 8 * r) % problem.pack] * slope_factor;
          const float own = float(first_own + (row + 8 * r) / problem.pack - first_key - column_of(0));
#pragma unroll
          for (int i = 2 * r; i < 8; i += i % 2 == 0 ? 1 : 3)
            scores[i] -= slope * fabsf(own - float(i / 4 * 8 + i % 2));
        }
      }
    }
    //| A window hides keys by comparing their numbers, but only in the chunks at its ends: the first, and the
    //| last ones if several queries see unequally far.
    if (first_key >= segment.length - 1 - left && first_key + kRowsPerMma - 1 <= first_own + right) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int key = first_key + column_of(i), own = first_own + (row + 8 * row_of(i)) / problem.pack;
      if (key < own - left || key > own + right) scores[i] = -INFINITY;
    }
  }

  //| ## Head dimensions between the tiles
  //|
  //| Chapters 5, 7 and 9 leave a head dimension of 80 to the tensor map, which fills the missing columns of a
  //| 128-wide tile with zeros. Copies of whole rows have no map. So a stage has rows as they are in memory,
  //| 160 bytes apart, and readers handle the missing columns: a lane whose 16 bytes would be past its row's
  //| end uses zeros instead, for Q, K and V. No byte is loaded in vain or copied beforehand, and columns
  //| of O past the last are not stored. One comparison per load is hidden behind memory, but to spare 64, 128
  //| and 256 even that, this is a separate kernel, one for all rules.
  template <int kHeadDim>
  __device__ int columns() const {
    return kPadded ? head_dim : kHeadDim;
  }

  //| ## The sink comes last
  //|
  //| A sink logit $b$ adds one term to a row's sum: $L = \sum_j e^{s_j} + e^b$, and
  //| $O = \sum_j e^{s_j} v_j / L$. It could go into any block's part, but then that part would differ from
  //| all others, and a row without keys would need one. So parts leave it out. The warp that stores a merged
  //| row, with $\mathrm{LSE}$ over all keys, adds it:
  //|
  //| $$\mathrm{LSE}' = \log(e^{\mathrm{LSE}} + e^b), \qquad O' = e^{\mathrm{LSE} - \mathrm{LSE}'} \, O .$$
  //|
  //| This is the merge rule for a part whose values are 0. A row without keys has O = 0, and its log-sum-exp
  //| is the sink logit.
  /// Adds a head's sink, and any constant that scores lack, to a finished row's log-sum-exp. Returns the
  /// factor for its O.
  __device__ float take_sink(float& lse, int head) const {
    lse += score_offset;
    const float sink = sinks == nullptr ? -INFINITY : sinks[head];
    if (sink == -INFINITY) return 1;
    const float max = fmaxf(lse, sink), weight = exp2_approx((lse - max) / kLn2);
    const float sum = weight + exp2_approx((sink - max) / kLn2);
    lse = max + __log2f(sum) * kLn2;
    return weight / sum;
  }

  /// Applies the sink of a query head to its merged row. One warp.
  template <int kHeadDim>
  __device__ WarpRow<kHeadDim> finished(WarpRow<kHeadDim> row, int head) const {
    const float factor = take_sink(row.lse, head);
#pragma unroll
    for (int c = 0; c < row.kColumns; ++c) row.value[c] *= factor;
    return row;
  }
};

}  // namespace flashbook::decoding
