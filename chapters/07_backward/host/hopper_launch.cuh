//| # How the Hopper kernels are launched
#pragma once
#include <type_traits>

#include "chapters/07_backward/prepare.cuh"
#include "chapters/07_backward/step3_hopper_single.cuh"
#include "chapters/07_backward/step4_hopper_blocks.cuh"
#include "common/device/dispatch.h"
#include "common/hopper/launch.h"

namespace flashbook::backward {

//| ## Versions
//|
//| A version is a type: it sets tile, stages, who adds dQ, and how a block gets tiles. A step is a version
//| with one switch changed. All versions share one layout of the workspace, 128 rows at a time, for any
//| tile of queries. If a workspace were padded for one tile and used with another, a kernel would read rows
//| that were never written.
/// Each head is padded in the workspace to a multiple of this many rows, so that query tiles are complete.
constexpr int kWorkspaceRows = 128;

/// The parameters that each version sets.
struct GradientSizes {
  int head_dim;
  int queries = 64;  ///< per tile
  bool causal = false;
  Sums sums = Sums::all;
};

/// One version of steps 4 to 6, as a type.
template <GradientSizes kSizes>
struct KernelTraits {
  static constexpr int kHeadDim = kSizes.head_dim, kValueDim = kHeadDim, kQueries = kSizes.queries;
  static constexpr bool kCausal = kSizes.causal;
  static constexpr Sums kSums = kSizes.sums;
  static constexpr int kStages = 2, kDsStages = 2;
  static constexpr int kThreads = kKeyConsumerThreads + kWarpgroup;
  // A block of three warpgroups starts with 504. Threads that begin at different queries need more than 24.
  static constexpr int kProducerRegisters = kCausal && kHeadDim != 256 ? 24 : 40;
  static constexpr int kConsumerRegisters = kCausal && kHeadDim != 256 ? 240 : 232;
  static constexpr bool kAddByTma = kSums != Sums::values;
  static constexpr bool kDeterministic = false;
  static constexpr Schedule kSchedule = Schedule::in_order_persistent;
  static constexpr bool kRotate = !kCausal && kHeadDim != 256;  // there it measured slower at all lengths
  static constexpr bool kLateDq = false;
  static constexpr bool kLongestFirst = kCausal;
  static constexpr bool kSharesKeys = kCausal;  ///< blocks of a group's heads add to its dK and dV
  static constexpr bool kSections = true;
};

//| ## The order of tiles of keys
//|
//| Under a causal mask, where the longest tiles should go first, they go first within a section of heads that
//| fits the L2. Step 6 has the sections without a mask, too: where blocks work on several heads, fewer of
//| them wait for each other's turns.
inline int64_t key_tiles(const Sizes& sizes) {
  return int64_t(sizes.batch) * sizes.kv_heads * ceil_div(sizes.seqlen_k, kTileKeys);
}

/// Returns the order of tiles of keys. Under a causal mask in sections of heads whose queries and sums of dQ
/// fit the L2 cache.
inline TileOrder key_order(const Sizes& sizes, bool sections, int64_t section_bytes = kSectionBytes) {
  const int64_t queries = int64_t(sizes.heads / sizes.kv_heads) * sizes.seqlen_q;
  return {int(key_tiles(sizes)),
          ceil_div(sizes.seqlen_k, kTileKeys),
          sizes.batch,
          sizes.kv_heads,
          kv_heads_of_gradient_section(sizes, queries, section_bytes),
          sections};
}

/// The largest length of a short sequence.
constexpr int kShort = 1024;

//| Counters, semaphores and sums must be 0 at the start, which `prepare` ensures.
constexpr int kCounters = 4;  ///< of tiles, one for each kind of block; 16 bytes
/// Returns the counters of steps 5 and 6, which follow the sums of dQ: a tile counter for each kind of block,
/// and the semaphores.
inline int* counters_of(const Spec& spec, const Tensors& tensors) {
  return reinterpret_cast<int*>(static_cast<char*>(tensors.workspace) +
                                bytes_of_workspace(spec, kWorkspaceRows, true));
}
/// Returns the sums of dK and dV behind the counters, if blocks share key heads: in step 5, for grouped heads
/// under a causal mask.
inline KeySums key_sums_of(const Spec& spec, const Tensors& tensors, int step) {
  if (step != 5 || !spec.causal() || spec.heads == spec.kv_heads) return {};
  const int padded_k = ceil_div(spec.seqlen_k, kTileKeys) * kTileKeys;
  const int64_t floats = int64_t(spec.batch) * spec.kv_heads * padded_k * tile_columns(spec.head_dim);
  float* const dk = reinterpret_cast<float*>(counters_of(spec, tensors) + kCounters);
  return {dk, dk + floats, padded_k, floats};
}
/// Returns a step's number of counters.
inline int64_t counters(const Spec& spec, int step) {
  return (step >= 5 ? kCounters : 0) +
         (step == 6 ? workspace_rows(spec, kWorkspaceRows) / kRowsPerWarpgroup * kKeyConsumers : 0);
}

//| ## Launches
//|
//| A launch has as many blocks as multiprocessors, or one per tile in step 4. Each launch is a dependent one:
//| its blocks begin while the last ones of the previous launch end, initialise their barriers, and wait. That
//| saves a few microseconds of idle time per launch.
//|
//| ![Two loops over the same tiles](../../../docs/figures/backward_loops.svg)
/// Launches a kernel of steps 3 to 6, which all begin with the same arguments.
template <typename T, typename Traits, typename Kernel, typename... More>
void run_kernel(Kernel kernel, int64_t blocks, int threads, const Spec& spec, const Tensors& t,
                device::Stream stream, const Problem& problem, const More&... more) {
  const Workspace workspace = workspace_of(spec, kWorkspaceRows, t);
  const int64_t rows = workspace_rows(spec, kWorkspaceRows);
  device::launch_dependent(
      kernel, dim3(unsigned(blocks)), dim3(threads), sizeof(HopperShared<T, Traits>), stream,
      tile_map(spec, TensorId::q, t.q, Traits::kQueries), tile_map(spec, TensorId::k, t.k, kTileKeys),
      tile_map(spec, TensorId::v, t.v, kTileKeys), tile_map(spec, TensorId::d_o, t.d_o, Traits::kQueries),
      row_map(workspace.lse, rows, Traits::kQueries), row_map(workspace.d, rows, Traits::kQueries),
      static_cast<T*>(t.dk), static_cast<T*>(t.dv), workspace, problem, more...);
}

/// Launches a version of steps 4 to 6.
template <typename T, typename Traits>
void run_blocks(const Spec& spec, const Tensors& t, device::Stream stream) {
  //| Late dQ at short lengths: sections of 8 MB measured 5 to 8 % faster than of 32 under a causal mask.
  //| There, step 6 processes the shortest tiles first, so a section ends with the longest tiles of all its
  //| heads at once, and fewer heads are better.
  int64_t section_bytes = kSectionBytes;
  if (Traits::kLateDq && spec.seqlen_q <= kShort) section_bytes = 8 << 20;
  if (Traits::kDeterministic && Traits::kCausal) section_bytes = 4 << 20;
  if (!Traits::kSections) section_bytes = 0;  // sections of one head
  const KeySums key_sums = Traits::kSharesKeys ? key_sums_of(spec, t, 5) : KeySums{};
  Problem problem = problem_of(spec, kWorkspaceRows);
  Sizes sizes = spec;
  if (key_sums.dk != nullptr) problem = head_by_head(problem), sizes.kv_heads = sizes.heads;
  const TileOrder order = key_order(sizes, Traits::kLongestFirst, section_bytes);
  int* const counter = counters_of(spec, t);
  run_kernel<T, Traits>(hopper_backward<T, Traits>, blocks_for(order, Traits::kSchedule), Traits::kThreads,
                        spec, t, stream, problem, order, key_sums,
                        counter + (Traits::kSums == Sums::values ? 1 : 0), counter + kCounters);
}

/// Launches the kernels with which steps 3 to 6 begin.
template <typename T, int kHeadDim>
void begin(const Spec& spec, const Tensors& t, device::Stream stream, int step) {
  run_prepare<T, kHeadDim, true>(spec, t, stream, kWorkspaceRows, counters_of(spec, t), counters(spec, step),
                                 key_sums_of(spec, t, step));
}

//| Step 3 has no roles, so a block has two warpgroups only.
template <typename T, typename Traits>
void run_single(const Spec& spec, const Tensors& t, device::Stream stream) {
  run_kernel<T, Traits>(hopper_single<T, Traits>, key_tiles(spec), kKeyConsumerThreads, spec, t, stream,
                        problem_of(spec, kWorkspaceRows));
}

template <typename T, int kHeadDim, int kQueries>
void run_convert(const Spec& spec, const Tensors& t, device::Stream stream) {
  const int tiles = ceil_div(spec.seqlen_q, kQueries);
  device::launch_dependent(convert_dq_parts<T, kHeadDim, kQueries>,
                           dim3(unsigned(int64_t(spec.batch) * spec.heads * tiles)),
                           dim3(kKeyConsumerThreads), 0, stream,
                           static_cast<const float*>(workspace_of(spec, kWorkspaceRows, t).dq),
                           static_cast<T*>(t.dq), problem_of(spec, kWorkspaceRows));
}

/// Launches the rounding of dK and dV, if blocks have added to them.
template <typename T, int kHeadDim>
void run_convert_keys(const Spec& spec, const Tensors& t, device::Stream stream, int step) {
  const KeySums sums = key_sums_of(spec, t, step);
  if (sums.dk == nullptr) return;
  device::launch_dependent(convert_keys<T, kHeadDim>,
                           dim3(unsigned(int64_t(spec.batch) * spec.kv_heads * (sums.padded_k / kTileKeys))),
                           dim3(kKeyConsumerThreads), 0, stream, sums, static_cast<T*>(t.dk),
                           static_cast<T*>(t.dv), problem_of(spec, kWorkspaceRows));
}

//| ## Choosing the version
//|
//| At d = 64 tiles have 128 queries: scores and dP take 128 floats per thread, dK and dV 64. At d = 128, with
//| 64 queries, it is the other way round. Both are 192 floats, and a thread can have 240 registers.
/// A version for the gradients of one tile, and dQ's conversion, if it is one that sums all of them; or one
/// for dV and one for dK and dQ.
template <int kHeadDim, bool kCausal>
struct Version : KernelTraits<GradientSizes{
                     .head_dim = kHeadDim, .queries = kHeadDim == 64 ? 128 : 64, .causal = kCausal}> {};

/// d = 256, dV.
template <bool kCausal>
struct Values256 : KernelTraits<GradientSizes{.head_dim = 256, .causal = kCausal, .sums = Sums::values}> {
  static constexpr int kDsStages = 1;
};

/// d = 256, dK and dQ: K and V fill more than half of the shared memory.
template <bool kCausal>
struct KeysAndQueries256
    : KernelTraits<GradientSizes{.head_dim = 256, .causal = kCausal, .sums = Sums::keys_and_queries}> {
  static constexpr int kStages = 1, kDsStages = 1;
  static constexpr bool kAddByTma = false;
};

//| Adding from registers avoids the detour through shared memory, but takes the consumer's time. For short
//| sequences, with few rounds per tile, this measured faster; for long ones TMA did.
/// Adds from registers. Step 3, and step 5 for short sequences and at d = 64.
template <typename Traits>
struct FromRegisters : Traits {
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  static constexpr bool kAddByTma = false;
};

//| At d = 64 shared memory is busier than the tensor cores, so registers add at every length. There late dQ
//| pays: it gives the additions a whole round. At d = 128 and 256 it measured slower.
/// Computes a round's dQ in the next round. Step 5 at d = 64.
template <typename Traits>
struct LateDq : FromRegisters<Traits> {
  static constexpr bool kLateDq = true;
};

//| Steps 3 and 4 begin at the first queries, as FlashAttention does; where to begin is a part of step 5.
/// Step 4: one block per key tile.
template <typename Traits>
struct OneTile : Traits {
  static constexpr bool kRotate = false, kSharesKeys = false;
  static constexpr Schedule kSchedule = Schedule::single_tile;
};

/// Step 6: dQ's additions in a fixed order.
template <typename Traits>
struct Deterministic : Traits {
  static constexpr bool kDeterministic = true, kRotate = false, kLongestFirst = true, kSharesKeys = false;
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;  // the adding threads need them
};

/// Blocks sum over whole groups of heads.
template <typename Traits>
struct WholeGroups : Traits {
  static constexpr bool kSharesKeys = false;
};

//| If dV has a separate launch, one block sums it, in the order of its rounds. So blocks do not take
//| turns, and the longest tiles go first, as in step 5.
/// The version of a launch of step 6.
template <typename Traits>
using Step6 = std::conditional_t<Traits::kSums == Sums::values, WholeGroups<Traits>, Deterministic<Traits>>;

/// Calls `use.operator()<Traits>()` with the version for a head dimension, or with both.
template <int kHeadDim, bool kCausal, typename Use>
void with_versions(Use use) {
  if constexpr (kHeadDim == 256) {
    use.template operator()<KeysAndQueries256<kCausal>>();
    use.template operator()<Values256<kCausal>>();
  } else {
    use.template operator()<Version<kHeadDim, kCausal>>();
  }
}

/// Does the same with step 5's version or versions for a shape's length.
template <int kHeadDim, bool kCausal, typename Use>
void with_step5(const Sizes& sizes, Use use) {
  with_versions<kHeadDim, kCausal>([&]<typename Traits>() {
    if constexpr (kHeadDim == 64) {
      use.template operator()<LateDq<Traits>>();
    } else {
      if constexpr (kHeadDim == 128)
        if (sizes.seqlen_q <= kShort) return use.template operator()<FromRegisters<Traits>>();
      use.template operator()<Traits>();
    }
  });
}

//| A step first computes D and fills the workspace, then makes one launch or two, then rounds dQ. All of them
//| run in one stream, one after another, and are included in the published times.
/// Launches steps 3 to 6.
template <typename T, int kHeadDim, bool kCausal>
void run_step(const Spec& spec, const Tensors& t, device::Stream stream, int step) {
  begin<T, kHeadDim>(spec, t, stream, step);
  if (step == 5)
    with_step5<kHeadDim, kCausal>(spec, [&]<typename Traits>() { run_blocks<T, Traits>(spec, t, stream); });
  else
    with_versions<kHeadDim, kCausal>([&]<typename Traits>() {
      switch (step) {
        case 3:
          return run_single<T, FromRegisters<Traits>>(spec, t, stream);
        case 4:
          return run_blocks<T, OneTile<Traits>>(spec, t, stream);
        default:
          return run_blocks<T, Step6<Traits>>(spec, t, stream);
      }
    });
  run_convert<T, kHeadDim, kHeadDim == 64 ? 128 : 64>(spec, t, stream);
  run_convert_keys<T, kHeadDim>(spec, t, stream, step);
}

//| The type and the mask become template arguments here, so kernels need not check them. Each head dimension
//| is compiled in its own file, `hopper_d64.cu` and the like, so that the three compile in parallel.
/// Launches a step for a shape's type and mask.
template <int kHeadDim>
void run_hopper(const Spec& spec, const Tensors& tensors, device::Stream stream, int step) {
  device::with_16_bit_type(spec.dtype, [&]<typename T>() {
    with_causal(spec, [&]<bool kCausal>() { run_step<T, kHeadDim, kCausal>(spec, tensors, stream, step); });
  });
}

}  // namespace flashbook::backward
