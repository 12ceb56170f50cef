//| # How the kernels are launched
//|
//| This is the host's part: tensor maps, scales, the order of tiles, grids. Versions of a step differ only in
//| their types.
//|
//| ![Tiles of queries by head, numbered in the order in which blocks take them: sections of heads, the
//| longest first](../../../docs/figures/tile_order.svg)
#pragma once
#include <algorithm>

#include "chapters/06_fp8/step1_attention.cuh"
#include "common/attention/tensors.h"
#include "common/hopper/launch.h"

namespace flashbook::fp8 {

static_assert(kRowsPerWarpgroup == kQueriesPerScale, "a warpgroup's queries have one scale");

//| Scales come as an array, or not at all: then all are 1. There may be one for a tensor, one for a key head,
//| or one for each block of rows. The kernel sees one form of it: the stride between heads, and whether each
//| block has its own scale.
inline Problem problem_of(const Spec& spec, const Tensors& t) {
  const auto scales = [&](const float* scale, int seqlen, int rows) {
    const bool block = spec.e4m3.scaling == Scaling::block;
    const int per_head = block ? ceil_div(seqlen, rows) : spec.e4m3.scaling == Scaling::head;
    return Scales{scale, per_head, block};
  };
  return {hopper::problem_of(spec),
          scales(t.q_scale, spec.seqlen_q, kQueriesPerScale),
          spec.e4m3.scaling == Scaling::head,
          scales(t.k_scale, spec.seqlen_k, kKeysPerScale),
          scales(t.v_scale, spec.seqlen_k, kKeysPerScale),
          t.k_mean,
          t.v_mean};
}

/// Returns the map of Q, K or V: panels as wide as a row, up to 128 bytes.
inline CUtensorMap input_map(const Spec& spec, TensorId tensor, const void* base, int box_rows) {
  return tile_map(spec, tensor, DType::e4m3, base, std::min(spec.head_dim, 128), box_rows);
}

//| The launch is chapter 5's (`common/hopper/launch.h`): the order of tiles, the counter set to 0, as many
//| blocks as multiprocessors. Maps differ in their type: Q, K and V are bytes, O is BF16.
//|
//| The workspace holds the counter of tiles, if the version has one. A version that transposes V once has two
//| more kinds of counters, and the tiles behind them. A small kernel sets all of them to 0, and the attention
//| kernel is launched as its dependent: it starts in the meantime, and waits before it uses them.
/// Resets the counters, one per thread.
static __global__ void clear_counters(int* counters,  // [count]
                                      int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) counters[i] = 0;
}

//| The workspace begins with the counters: the next tile of queries, the next piece of V, and for each key
//| head how many pieces are done. The pieces follow at a multiple of 1024 bytes.
/// How a version divides its workspace.
template <typename Traits>
struct WorkspaceLayout {
  int kv_heads, pieces_of_head, counters;
  int64_t first_tile;  ///< bytes before the tiles of V

  explicit WorkspaceLayout(const Spec& spec)
      : kv_heads(spec.batch * spec.kv_heads),
        pieces_of_head(ceil_div(spec.seqlen_k, Traits::kKeys) * (Traits::kKeys / Traits::kPieceKeys)),
        counters(Traits::kTransposeOnce                              ? 2 + kv_heads
                 : Traits::kSchedule == Schedule::dynamic_persistent ? 1
                                                                     : 0),
        first_tile(ceil_div(counters * int64_t(sizeof(int)), 1024) * 1024) {}

  int64_t bytes() const {
    if constexpr (!Traits::kTransposeOnce) return counters * int64_t(sizeof(int));
    return first_tile + int64_t(kv_heads) * pieces_of_head * (Traits::kHeadDim * Traits::kPieceKeys);
  }
};

//| The longest tiles go first, in sections of heads: the first tiles of all heads of a section begin at once,
//| and need all of its V. The fewer heads, the sooner V is transposed, and the less the L2 has to hold; but a
//| section ends with its shortest tiles, and too few of these may be left for all blocks. The best size was
//| measured on an H200.
/// Returns the bytes of keys and values in a section of heads (see tile_order).
template <int kHeadDim>
int64_t section_bytes(int seqlen_k) {
  const int megabytes = kHeadDim == 256    ? (seqlen_k <= 512 ? 16 : 8)
                        : seqlen_k <= 1024 ? 8
                        : seqlen_k <= 4096 ? 16
                                           : 32;
  return int64_t(megabytes) << 20;
}

/// Launches a version of the kernel.
template <typename Traits>
void run(const Spec& spec, const Tensors& t, device::Stream stream) {
  constexpr int kRows = Traits::kConsumers * kRowsPerWarpgroup;
  const TileOrder order = tile_order(spec, kRows, Traits::kSchedule == Schedule::dynamic_persistent,
                                     section_bytes<Traits::kHeadDim>(spec.seqlen_k));
  const WorkspaceLayout<Traits> layout(spec);
  auto* const counters = static_cast<int*>(t.workspace);
  TransposedValues values{};
  if constexpr (Traits::kTransposeOnce)
    values = {static_cast<unsigned char*>(t.workspace) + layout.first_tile, counters + 1, counters + 2,
              layout.pieces_of_head, layout.kv_heads * layout.pieces_of_head};
  if (layout.counters > 0)
    device::launch(clear_counters, dim3(ceil_div(layout.counters, 256)), dim3(256), 0, stream, counters,
                   layout.counters);
  //| Steps 1 to 6 are launched as chapter 5's kernels are. A dependent launch saves the wait between two
  //| kernels.
  const auto launch = [](auto... arguments) {
    if constexpr (Traits::kTransposeOnce)
      device::launch_dependent(attend<Traits>, arguments...);
    else
      device::launch(attend<Traits>, arguments...);
  };
  launch(dim3(blocks_for(order, Traits::kSchedule)), dim3(Traits::kThreads), sizeof(Shared<Traits>), stream,
         input_map(spec, TensorId::q, t.q, kRowsPerWarpgroup),
         input_map(spec, TensorId::k, t.k, Traits::kKeys),
         input_map(spec, TensorId::v, t.v, Traits::kPieceKeys),
         tile_map(spec, TensorId::o, DType::bf16, t.o, 64, kRowsPerWarpgroup),
         static_cast<__nv_bfloat16*>(t.o), t.lse, problem_of(spec, t), order, counters, values);
}

//| ## The versions
//|
//| Tiles are 128 keys wide up to d = 128. At d = 256 they are 96: O takes 128 registers of a thread, and S
//| and P must fit into the rest. With block scales, they are only 64 wide at d = 256, because a scale covers
//| 128 keys and 96 does not divide 128.

/// Step 5 for sequences of medium length.
template <int kHeadDim, bool kCausal>
using Fastest = KernelTraits<Fp8Sizes{.head_dim = kHeadDim,
                                      .consumers = kHeadDim == 64 ? 3 : 2,
                                      .keys = kHeadDim == 256 ? 96 : 128,
                                      .causal = kCausal}>;

//| Each step is a type that changes switches of the step after it. So `Straight` is `Overlapped` without some
//| of them, and the lines of a type show what the next step adds.
/// Step 2: a block for each tile of queries, one loop for masked and unmasked tiles of keys.
template <int kHeadDim>
struct Overlapped : Fastest<kHeadDim, true> {
  static constexpr bool kSplitLoops = false, kLazy = false, kStoreByTma = false;
  static constexpr int kOffset = 8;
  static constexpr Schedule kSchedule = Schedule::single_tile;
};

/// Step 1.
template <int kHeadDim>
struct Straight : Overlapped<kHeadDim> {
  static constexpr bool kMatrices = false, kOverlap = false, kPingpong = false;
  static constexpr int kOffset = 0;
};

/// Steps 3 and 4.
template <int kHeadDim>
struct BlockScaled : Overlapped<kHeadDim> {
  static constexpr int kKeys = kHeadDim == 256 ? 64 : 128;
  static constexpr int kPieceKeys = kKeys;
  static constexpr bool kBlockScales = true;
};

//| The next two are for long and for short sequences.
/// Step 5 for long sequences of head_dim 128. A third consumer fills the waits of the other two, and shares
/// their keys and values, so the transposers have a third less to do. Its registers come from narrower tiles,
/// and from Q, which stays in shared memory. For short sequences, 192 queries per block leave too few blocks.
template <bool kCausal>
struct LongD128 : KernelTraits<Fp8Sizes{.head_dim = 128, .consumers = 3, .keys = 96, .causal = kCausal}> {
  static constexpr bool kQueriesInRegisters = false;
  static constexpr int kProducerRegisters = 32, kConsumerRegisters = 160;  // 32 + 3 * 160 = 4 * 128
};

/// Step 5 for short sequences with head_dim 64, without pingpong, which measured faster. (In 16 bits, in
/// chapter 5, short sequences were faster with pingpong. We do not know why FP8 differs.)
template <int kConsumers, bool kCausal>
struct ShortD64 : KernelTraits<Fp8Sizes{.head_dim = 64, .consumers = kConsumers, .causal = kCausal}> {
  static constexpr bool kPingpong = false;
};

//| Steps 6 to 8 each change one switch of a version before them, so each of the tiles above can be used.
/// Step 6 of a version of step 5.
template <typename Traits>
struct SumsByProduct : Traits {
  static constexpr bool kSumsByProduct = true;
};

/// Step 7: V transposed once. The place of an incoming piece is free as soon as the piece is transposed, so
/// one place is enough.
template <typename Traits>
struct TransposedOnce : SumsByProduct<Traits> {
  static constexpr bool kTransposeOnce = true;
  static constexpr int kRawStages = 1;
};

//| Without the second pipeline for raw values, and with a producer that keeps few registers, there is room
//| for wider tiles: 128 keys at d = 256, where registers allowed at most 96 before.
/// Step 7 at head_dim 256. Pieces have 64 keys, since whole tiles do not fit next to the other buffers.
template <bool kCausal>
struct WideD256 : KernelTraits<Fp8Sizes{.head_dim = 256, .causal = kCausal}> {
  static constexpr int kPieceKeys = 64, kKeyStages = 2, kTransposerBatch = 1;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;  // 24 + 2 * 240 = 3 * 168
};

/// Step 8 for long sequences of head_dim 128 without a mask.
struct WideD128 : KernelTraits<Fp8Sizes{.head_dim = 128, .keys = 192}> {
  static constexpr bool kQueriesInRegisters = false;
  static constexpr int kPieceKeys = 96, kKeyStages = 2, kTransposedStages = 2;
};

/// Step 8 of a version of step 6 or 7.
template <typename Traits>
struct ByLine : Traits {
  static constexpr bool kLine = true;
};

//| Step 9 promotes the sums of any version. Its running sums are where the outputs of others are, and Q makes
//| room in the registers of three consumers. At d = 256 running sums leave room for two stages of 96 keys.
constexpr int kPromotedKeys = 960;  ///< between two promotions

/// Step 9 of a version.
template <typename Traits>
struct Promoted : Traits {
  static constexpr int kPromoteTiles = kPromotedKeys / Traits::kKeys;
  static constexpr bool kStoreByTma = false;
  static constexpr bool kQueriesInRegisters = Traits::kQueriesInRegisters && Traits::kConsumers == 2;
};

/// The version on which step 9 is based at head_dim 256.
template <bool kCausal>
struct NarrowD256 : KernelTraits<Fp8Sizes{.head_dim = 256, .keys = 96, .causal = kCausal}> {
  static constexpr int kPieceKeys = 32, kKeyStages = 2, kTransposerBatch = 1;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;  // 24 + 2 * 240 = 3 * 168
};

/// The version on which step 9 is based with block scales: step 4, with lazy rescaling.
template <int kHeadDim>
struct LazyBlockScaled : BlockScaled<kHeadDim> {
  static constexpr bool kLazy = true;
  static constexpr int kOffset = 6;
};

}  // namespace flashbook::fp8
