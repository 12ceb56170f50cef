//| # Step 5: functions
//|
//| Steps 1 to 4 each handle one kind of mask, and no library can foresee every mask that its users will want.
//| So this step takes two *functions*, as FlexAttention does (arXiv 2412.05496): one decides which pairs are
//| visible, the other changes a score. They are types, passed as template parameters, and the compiler
//| inlines them, for a GPU and for the simulator.
//|
//| **Curried.** FlexAttention's `mask_mod(b, h, q, k)` takes all four indices at once. Here `row(b, h, q)`
//| returns a value that takes the last one, `sees(k)`. A thread owns two rows, and work that depends on the
//| row, such as the search for its document, is done once instead of for each of the row's 32 keys that it
//| has in a tile of 128.
//|
//| ![Four masks in tiles: most tiles are skipped, some are full, and those where a mask cuts are
//| partial](../../docs/figures/mask_tiles.svg)
#pragma once
#include "chapters/09_masks/step2_varlen.cuh"
#include "common/features/dropout/dropout.h"
#include "common/ptx/math.h"

namespace flashbook::masks {

//| ## Masks
//|
//| | member | meaning |
//| | --- | --- |
//| | `row(batch, head, query)` | a value with `sees(key)`; `columns(key)`, if present, answers for all of a thread's columns at once |
//| | `kByHead` | whether heads and batch entries have their own masks |
//| | `classify<kKeys>(first_query, last_query, first_key)` | the class of a tile; masks that cannot determine it omit this function |
/// The mask that a window, a prefix and documents make together.
struct RangeMask {
  static constexpr bool kByHead = false;
  Sequence sequence;  ///< contains all existing rows
  Ranges ranges;

  __device__ KeyRanges row(int, int, int query) const { return ranges.row(sequence, query); }
  __device__ KeyRanges row_in(const Sequence& document, int query) const {
    return ranges.row_in(document, query);
  }
  __device__ bool has_prefix() const { return ranges.band.has_prefix(); }
  __device__ Sequence document_of_all(const Work& work, int rows) const {
    return ranges.document_of_all(sequence, work.first_query, rows);
  }

  template <int kKeys>
  __device__ TileClass classify(int first_query, int last_query, int first_key) const {
    return RangeTiles<kKeys>(ranges, sequence, first_query, last_query).classify(first_key);
  }
};

//| Some masks have no formula: the user lists the visible blocks, of any size. For each key, a binary search
//| looks for its block in the row's list. That is slow, but happens in partial tiles only, and blocks of the
//| size of tiles make no partial tiles.
/// A mask of listed blocks. Ranges may restrict it further.
struct BlockMask {
  static constexpr bool kByHead = false;
  RangeMask other;
  const int* first;       // [rows of blocks + 1]
  const int* key_blocks;  // ascending within a row
  device::Divisor queries_of_block, keys_of_block;

  //| A row only stores where its blocks begin and end in the list. The list itself belongs to the mask.
  struct Row {
    const BlockMask& mask;
    KeyRanges ranges;
    int begin, end;  ///< where the row's blocks begin and end in the list

    __device__ bool sees(int key) const {
      if (!ranges.sees(key)) return false;
      const int block = key / mask.keys_of_block;
      int low = begin, high = end;
      while (low < high) {
        const int middle = (low + high) / 2;
        if (mask.key_blocks[middle] < block)
          low = middle + 1;
        else
          high = middle;
      }
      return low < end && mask.key_blocks[low] == block;
    }
  };
  __device__ Row row(int batch, int head, int query) const {
    const int at = query / queries_of_block;
    return {*this, other.row(batch, head, query), first[at], first[at + 1]};
  }
};

//| ## Which tiles
//|
//| A function of a pair cannot classify a tile. But a kernel that runs first can evaluate it for every pair,
//| once for all heads if they share the mask: 67 million pairs for 8192 tokens. It writes a word for each
//| pair of tiles, and the producer reads 32 of them at a time. FlexAttention makes such a `BlockMask`
//| beforehand, in PyTorch, and keeps it.
//|
//| A mask that can classify tiles may do so. `RangeMask` has a function `classify`, so its pairs are not
//| evaluated here.

constexpr int kClassifyThreads = 128;

/// Returns the class of a tile of kKeys keys, pair by pair. All lanes of a warp call it and share the rows.
template <int kKeys, typename Mask>
__device__ __forceinline__ TileClass ask_every_pair(const Mask& mask, const Problem& problem, int number,
                                                    int first_query, int last_query, int first_key) {
  int asked = 0, seen = 0;
  for (int query = first_query + threadIdx.x % 32; query <= last_query; query += 32) {
    const auto row = mask.row(number / problem.heads, number % problem.heads, query);
    for (int key = first_key; key < min(first_key + kKeys, problem.seqlen_k); ++key) seen += row.sees(key);
    asked += kKeys;  // keys past the end are hidden, so their tile is not full
  }
  if (!__any_sync(kWholeWarp, seen > 0)) return TileClass::skip;
  return __all_sync(kWholeWarp, seen == asked) ? TileClass::full : TileClass::partial;
}

//| This kernel runs before each launch of the attention kernel.
/// A mask that knows the class of a tile.
template <typename Mask, int kKeys>
concept KnowsTiles = requires(const Mask& mask) {
  mask.template classify<kKeys>(0, 0, 0);
};

/// Writes the class of tiles of kRows queries by kKeys keys. Grid: (tiles of keys, four per block; tiles of
/// queries; masks). Each warp has a tile.
template <int kRows, int kKeys, typename Mask>
__global__ void __launch_bounds__(kClassifyThreads)
    classify_tiles(const __grid_constant__ Mask mask, const __grid_constant__ Problem problem, int key_tiles,
                   TileClass* classes) {  // [masks, query tiles, key tiles]
  //| Each warp handles a tile of keys, each row of the grid a tile of queries. Whether the mask has a
  //| `classify` is known at compile time.
  const int tile = (blockIdx.x * kClassifyThreads + threadIdx.x) / 32;
  if (tile >= key_tiles) return;
  const int first_query = blockIdx.y * kRows, last_query = min(first_query + kRows, problem.seqlen_q) - 1;
  TileClass found;
  if constexpr (KnowsTiles<Mask, kKeys>)
    found = mask.template classify<kKeys>(first_query, last_query, tile * kKeys);
  else
    found = ask_every_pair<kKeys>(mask, problem, blockIdx.z, first_query, last_query, tile * kKeys);
  if (threadIdx.x % 32 == 0)
    classes[(int64_t(blockIdx.z) * gridDim.y + blockIdx.y) * key_tiles + tile] = found;
}

/// The tiles of keys for a tile of queries.
struct ListedTiles {
  const TileClass* classes;  // [tiles of keys]
  Span span;
  int tile_keys;

  __device__ TileClass classify(int first_key) const { return classes[first_key / tile_keys]; }
};

//| ## Scores
//|
//| | member | meaning |
//| | --- | --- |
//| | `row(work, query)` | a value that takes a score and its key, and returns another; `from(key)` counts keys from there |
//| | `scale_log2` | the softmax's factor for the new score, in place of scale * log2(e) |
//| | `score_offset` | a constant that was left out of all scores, which only the log-sum-exp includes |
//| | `kExtras` | `changes`, and `keys` if it takes the key: then full tiles need theirs (`problem.cuh`) |
//|
//| ### Softcap
//|
//| c * tanh(s / c) keeps scores below c. `tanh.approx` is one instruction, but its 11 bits are too few for
//| f16. With tanh(x) = 2 / (1 + e^(-2x)) - 1, two special-function instructions suffice: c * tanh(s / c) =
//| 2c / (1 + e^(-2s/c)) - c. The softmax is unaffected if all scores lose the same -c. So the function
//| computes 1 / (1 + 2^(f s)) with a negative f, and the factor 2c is merged into the scale, by which the
//| softmax multiplies anyway.
/// c * tanh(s / c), without the constant -c.
struct Softcap {
  static constexpr ScoreExtras kExtras = {.changes = true};
  static constexpr bool kReadsMemory = false;
  float factor;        ///< -2 * log2(e) * scale / c
  float scale_log2;    ///< 2 * c * log2(e)
  float score_offset;  ///< -c

  __device__ Softcap row(const Work&, int) const { return *this; }
  __device__ Softcap from(int) const { return *this; }
  __device__ float operator()(float score, int) const {
    return __fdividef(1.0f, 1.0f + exp2_approx(score * factor));
  }
};

//| ### ALiBi
//|
//| ALiBi is a penalty for distance, with a slope per head. The softmax multiplies scores by the scale, so the
//| slope is divided by the scale first. Distances count within a document, so a row first looks for its
//| document. FlashAttention also takes slopes per sequence, so there is a distance between the slopes of two
//| sequences: 0 if all share them.
/// The position of a query.
struct OwnPlace {
  int sequence;  ///< the query's document, or batch entry
  int key;       ///< the key at the query's own place there
};

__device__ __forceinline__ OwnPlace own_place_of(const Ranges& ranges, const Work& work, int query) {
  Sequence s = work.sequence;
  int number = work.head.batch;
  if (ranges.documents.count > 0) {
    number = ranges.documents.find(query);
    s = ranges.documents.at(number);
  }
  return {number, s.first_key + query - s.first_query + s.keys - s.queries};
}

/// Subtracts slope * |own key - key| from a score.
struct Alibi {
  static constexpr ScoreExtras kExtras = {.changes = true, .keys = true};
  const float* slopes;  // [heads], or [sequences, heads]
  Ranges ranges;        ///< distances are counted within its documents
  float scale_log2;     ///< same as without the function
  float per_scale;      ///< 1 / scale
  float score_offset = 0;
  int to_sequence = 0;  ///< distance to the next sequence's slopes; 0: all share them

  //| Distances are floats. The key's number, counted from the thread's first column, is a compile-time
  //| constant, so its conversion to float costs nothing.
  struct Row {
    static constexpr bool kReadsMemory = false;
    float slope, own;  ///< its slope, and its own key

    __device__ Row from(int first) const { return {slope, own - float(first)}; }
    __device__ float operator()(float score, int key) const {
      return score - slope * fabsf(own - float(key));
    }
  };
  __device__ Row row(const Work& work, int query) const {
    const OwnPlace own = own_place_of(ranges, work, query);
    return {slopes[own.sequence * to_sequence + work.head.head] * per_scale, float(own.key)};
  }
};

//| ### A bias by distance
//|
//| T5 (arXiv 1910.10683) learns what ALiBi fixes: a number for each head and each distance, which many
//| distances may share. It comes as a table, one row per head. A distance past either end of the table uses
//| the number at that end. The bias costs a load and a multiply-add per score; the tables of all heads are a
//| few KB and stay in the L1.
/// Adds the bias of a key's distance.
struct DistanceBias {
  static constexpr ScoreExtras kExtras = {.changes = true, .keys = true};
  const float* bias;  // [heads, 2 * reach + 1]
  int reach;
  Ranges ranges;     ///< distances are counted within its documents
  float scale_log2;  ///< same as without the function
  float per_scale;   ///< 1 / scale
  float score_offset = 0;

  struct Row {
    static constexpr bool kReadsMemory = true;
    const float* middle;  ///< the entry of distance 0
    int reach, own;       ///< the table's reach, and its own key
    float per_scale;

    __device__ Row from(int first) const { return {middle, reach, own - first, per_scale}; }
    __device__ float operator()(float score, int key) const {
      return score + middle[min(max(key - own, -reach), reach)] * per_scale;
    }
  };
  __device__ Row row(const Work& work, int query) const {
    const int64_t length = 2 * int64_t(reach) + 1;
    return {bias + work.head.head * length + reach, reach, own_place_of(ranges, work, query).key, per_scale};
  }
};

//| ### One after the other
//|
//| FlashAttention caps a score first, and then subtracts ALiBi's penalty from it. `Composed` is such a pair,
//| and is itself a function. The first one's results have their own scale: the softmax multiplies a capped
//| score by $2c$ instead of the usual scale. So the host divides the slopes by $2c$.
/// A function, and another of its result. Both have the first's `scale_log2`.
template <typename First, typename Second>
struct Composed {
  static constexpr ScoreExtras kExtras = {.changes = true,
                                          .keys = First::kExtras.keys || Second::kExtras.keys};
  First first;
  Second second;
  float scale_log2;
  float score_offset;  ///< offset of both functions

  template <typename FirstRow, typename SecondRow>
  struct Row {
    static constexpr bool kReadsMemory = FirstRow::kReadsMemory || SecondRow::kReadsMemory;
    FirstRow first;
    SecondRow second;

    __device__ Row from(int key) const { return {first.from(key), second.from(key)}; }
    __device__ float operator()(float score, int key) const { return second(first(score, key), key); }
  };
  __device__ auto row(const Work& work, int query) const {
    return Row<decltype(first.row(work, query)), decltype(second.row(work, query))>{first.row(work, query),
                                                                                    second.row(work, query)};
  }
};

//| ### Dropout
//|
//| Dropout acts after the softmax: some probabilities become 0, and the others grow by 1 / (1 - p). Sums and
//| the log-sum-exp are those of *all* probabilities. A backward pass must drop the same elements, in tiles of
//| a different order and in different threads, so random bits have no state. Philox (Salmon et al., SC 2011)
//| makes 128 of them from a seed and a counter, and the counter is the element's place: batch entry, head,
//| query, key (`common/features/dropout/dropout.h`).
//|
//| 16 bits per element are enough, so one call serves eight keys. Which eight? The eight of 32 columns that
//| one thread has: two neighbours of every eight. Then no bit is computed twice, and the answer still depends
//| on the place alone.
//|
//| In packed sequences, keys are counted from the first key of their sequence. So a thread's eight keys share
//| a call wherever the sequence begins.
//|
//| The factor 1 / (1 - p) is the same for all elements, and is applied where the output is divided by its
//| sum.
/// Drops probabilities at random, after a function on scores or none.
template <typename Score>
struct RandomDropout : Score {
  static constexpr ScoreExtras kExtras = {.changes = Score::kExtras.changes, .keys = true, .drops = true};
  Dropout dropout;

  /// Returns the query whose number the random bits depend on.
  __device__ static int query_of(const Work&, int query) { return query; }
};

//| ## The policy
/// Step 5.
template <typename Mask, typename Score>
struct ByFunctions : InBatch {
  static constexpr Extras kExtras = {.prepared = true, .documents = CountsInDocuments<Mask>};
  Mask mask;
  const TileClass* classes;  // [masks, query tiles, key tiles]
  int query_tiles, key_tiles;
  int tile_rows;  ///< queries per tile
  Score score;

  template <int kKeys>
  __device__ ListedTiles tiles(const Work& work, int) const {
    const int number = Mask::kByHead ? work.head.batch * int(order.heads) + work.head.head : 0;
    return {classes + (int64_t(number) * query_tiles + work.first_query / tile_rows) * key_tiles,
            {0, 0, key_tiles},
            kKeys};
  }
  __device__ auto row(const Work& work, int query) const {
    return mask.row(work.head.batch, work.head.head, query);
  }
  //| If the mask has documents, so does the policy.
  __device__ auto row_in(const Sequence& document, int query) const requires CountsInDocuments<Mask> {
    return mask.row_in(document, query);
  }
  __device__ bool has_prefix() const requires CountsInDocuments<Mask> { return mask.has_prefix(); }
  __device__ Sequence document_of_all(const Work& work, int rows) const requires CountsInDocuments<Mask> {
    return mask.document_of_all(work, rows);
  }
};

//| ## Packed sequences
//|
//| `RangeMask` treats documents as a mask, so a NaN in one of them reaches its neighbours. Packed sequences
//| therefore use step 2's policy, whose tiles never span two of them. The kernel then counts queries and keys
//| from the beginning of the sequence, whereas the functions above count from the beginning of the tensor. So
//| a function gets the query's number in the tensor, and `from` makes its keys count from the sequence's
//| first.
/// A function on scores of packed sequences.
template <typename Score>
struct InSequences : Score {
  __device__ auto row(const Work& work, int query) const {
    return Score::row(work, query_of(work, query)).from(work.sequence.first_key);
  }
  __device__ static int query_of(const Work& work, int query) { return work.sequence.first_query + query; }
};

/// Step 5, for packed sequences.
template <typename Score>
struct VarlenByFunctions : InPlan<Packed>, InRanges {
  static constexpr Extras kExtras = {.prepared = true, .documents = true};
  InSequences<Score> score;
};

}  // namespace flashbook::masks
