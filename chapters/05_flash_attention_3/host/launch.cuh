//| # How the kernels are launched
//|
//| The host's part: tensor maps, the order of tiles, grids. Versions of a step differ in their types only.
//|
//| ![Tiles of queries by head, numbered in the order in which blocks take them: sections of heads, the
//| longest first](../../../docs/figures/tile_order.svg)
#pragma once
#include "chapters/05_flash_attention_3/step1_single_warpgroup.cuh"
#include "chapters/05_flash_attention_3/step2_specialised.cuh"
#include "chapters/05_flash_attention_3/step3_pingpong.cuh"
#include "chapters/05_flash_attention_3/step4_overlap.cuh"
#include "chapters/05_flash_attention_3/step5_persistent.cuh"
#include "common/attention/tensors.h"
#include "common/hopper/launch.h"

namespace flashbook::fa3 {

//| The parts that later chapters share are in `common/hopper/launch.h`: the tensor maps and the order of
//| tiles. A map's box is a tile: 64 queries, or the keys of a version.

//| ## The launches
//|
//| Step 1 has a block for each 64 queries. Tiles have 128 keys, and 64 at d = 256, so that two blocks fit on
//| a multiprocessor.
/// Launches step 1.
template <typename T, int kHeadDim>
void run_single(const Spec& spec, const Tensors& t, device::Stream stream) {
  constexpr int kKeys = kHeadDim == 256 ? 64 : 128;
  device::launch(single_warpgroup<T, kHeadDim, kKeys>, dim3(query_tiles(spec, kRowsPerWarpgroup)),
                 dim3(kWarpgroup), sizeof(SingleShared<T, kHeadDim, kKeys>), stream,
                 tile_map(spec, TensorId::q, t.q, kRowsPerWarpgroup), tile_map(spec, TensorId::k, t.k, kKeys),
                 tile_map(spec, TensorId::v, t.v, kKeys), static_cast<T*>(t.o), t.lse, problem_of(spec));
}

//| Steps 2 to 4 have a block for each 128 queries, or 192 at d = 64. Four stages are two tiles of keys and
//| two of values. 80 keys are the most that fit at d = 256.
/// The tile sizes of steps 2 to 4 for a head dimension.
template <int kHeadDim>
using SpecialisedFor = SpecialisedTraits<SpecialisedSizes{
    .head_dim = kHeadDim, .consumers = kHeadDim == 64 ? 3 : 2, .keys = kHeadDim == 256 ? 80 : 128}>;

/// Launches step 2, 3 or 4.
template <typename T, int kStep, typename Traits>
void run_specialised(const Spec& spec, const Tensors& t, device::Stream stream) {
  const auto launch = [&](auto* kernel) {
    device::launch(
        kernel, dim3(query_tiles(spec, Traits::kConsumers * kRowsPerWarpgroup)), dim3(Traits::kThreads),
        sizeof(SpecialisedShared<T, Traits>), stream, tile_map(spec, TensorId::q, t.q, kRowsPerWarpgroup),
        tile_map(spec, TensorId::k, t.k, Traits::kKeys), tile_map(spec, TensorId::v, t.v, Traits::kKeys),
        static_cast<T*>(t.o), t.lse, problem_of(spec));
  };
  if constexpr (kStep == 2) launch(specialised<T, Traits>);
  if constexpr (kStep == 3) launch(pingpong<T, Traits>);
  if constexpr (kStep == 4) launch(overlapping<T, Traits>);
}

//| Step 5 starts as many blocks as there are multiprocessors, or one per tile if there are fewer tiles.
/// Launches a version of step 5. The workspace holds the counter, if the version has one: 0 before the first
/// launch, and after every launch. Two calls that may run at the same time need separate workspaces.
template <typename T, typename Traits>
void run_persistent(const Spec& spec, const Tensors& t, device::Stream stream) {
  //| Under a causal mask a section of heads has 32 MB of keys and values. With 512 keys that would be 128
  //| heads or more, and smaller sections are up to 7 % faster (measured on an H200; not at d = 256).
  const bool is_short = Traits::kHeadDim <= 128 && spec.seqlen_k <= 1024;
  const TileOrder order =
      tile_order(spec, Traits::kRows, Traits::kCausal, is_short ? int64_t(8) << 20 : kSectionBytes);
  auto* counter = static_cast<int*>(t.workspace);
  device::launch(
      persistent<T, Traits>, dim3(blocks_for(order, Traits::kSchedule)), dim3(Traits::kThreads),
      sizeof(PersistentShared<T, Traits>), stream, tile_map(spec, TensorId::q, t.q, kRowsPerWarpgroup),
      tile_map(spec, TensorId::k, t.k, Traits::kKeys), tile_map(spec, TensorId::v, t.v, Traits::kKeys),
      tile_map(spec, TensorId::o, t.o, kRowsPerWarpgroup), static_cast<T*>(t.o), t.lse, problem_of(spec),
      order, counter);
}

//| ## Which version of step 5 for which shape
//|
//| The choice follows measurements on an H200; the page has the table.

/// Maximum lengths at which a version for short sequences is faster under a causal mask.
constexpr int kShortD64 = 1024, kShortD128 = 2048;

//| A version is a type that derives from `PersistentTraits` and changes a switch. So the compiler sees every
//| combination that is used, and no other, and an `if constexpr` leaves nothing behind.
/// The causal version for short sequences of head_dim 64. In short sequences, tiles of 192 queries waste more
/// above the diagonal than tiles of 128; and the mask cuts most tiles, where rows that have seen few keys
/// have no limit yet.
struct ShortD64 : PersistentTraits<PersistentSizes{.head_dim = 64, .stages = 8, .causal = true}> {
  static constexpr bool kLazy = false;
};

/// The causal version for short sequences of head_dim 128: they end before the consumers alternate by
/// themselves, so a fixed order pays.
struct ShortD128 : PersistentTraits<PersistentSizes{.head_dim = 128, .causal = true}> {
  static constexpr bool kPingpong = true;
};

//| The choice is made on the host, by shape. `use` is called with one type; the program launches it, the
//| tests check it, and the ablation derives from it.
/// Calls `use.operator()<Traits>()` with step 5's version for a head dimension, a mask and a length.
template <int kHeadDim, typename Use>
void with_version(const Spec& spec, Use use) {
  with_causal(spec, [&]<bool kCausal>() {
    if constexpr (kHeadDim == 64) {
      if constexpr (kCausal)
        if (spec.seqlen_q <= kShortD64) return use.template operator()<ShortD64>();
      use.template operator()<PersistentTraits<PersistentSizes{
          .head_dim = 64, .consumers = 3, .stages = 8, .causal = kCausal}>>();
    } else if constexpr (kHeadDim == 128) {
      if constexpr (kCausal)
        if (spec.seqlen_q <= kShortD128) return use.template operator()<ShortD128>();
      use.template operator()<PersistentTraits<PersistentSizes{.head_dim = 128, .causal = kCausal}>>();
    } else {
      use.template
      operator()<PersistentTraits<PersistentSizes{.head_dim = 256, .keys = 64, .causal = kCausal}>>();
    }
  });
}

}  // namespace flashbook::fa3
