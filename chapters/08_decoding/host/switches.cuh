//| # The switches of step 4, each changed
//|
//| The ring's sizes and switches are one type ([ring_shared.cuh](../ring_shared.cuh)). These types derive
//| from it and change one thing each. The bench interleaves them with step 4; the tests check each against
//| the oracle. `mma.sync`, plain copies and keys by warp have no switch: `wgmma` accepts neither the layout
//| that a plain copy leaves nor a part of a tile, so all three together are step 3's kernel.
//|
//| ![A producer warp keeps three stages of 32 KB filled; eight consumer warps each take 16 keys of a tile and
//| merge at the end](../../../docs/figures/decode_ring.svg)
#pragma once
#include "chapters/08_decoding/host/launch.cuh"

namespace flashbook::decoding {

/// Step 4, unchanged.
template <typename Traits>
struct AsItIs : Traits {};

//| ## The ring
//|
//| Keys and values of a tile have a stage each, so two stages hold one tile. With `TileByTile` the next tile
//| is requested when this one is done, as in step 3; with `TwoStages` its keys are requested as soon as the
//| scores are computed.
/// One tile at a time; no copy is in flight while it is used.
template <typename Traits>
struct TileByTile : Traits {
  static constexpr int kStages = 2;
  static constexpr bool kTileByTile = true;
};

/// A ring of two stages.
template <typename Traits>
struct TwoStages : Traits {
  static constexpr int kStages = 2;
};

/// A ring of six stages.
template <typename Traits>
struct SixStages : Traits {
  static constexpr int kStages = 6;
};

//| ## The tile and the merge
/// 64 rows, of which the group fills only some: four warps read each key.
template <typename Traits>
struct SixtyFourRows : RingKernelTraits<RingSizes{.head_dim = Traits::kHeadDim, .row_tiles = 4}> {};

/// Always merges parts in a second kernel, however few there are.
template <typename Traits>
struct SecondKernel : Traits {
  static constexpr int kPartsForLast = 1;
};

//| ## The launches
//|
//| A part has a place for each row of the tile, used or not, so the workspace always has room for 64
//| rows.
/// Returns where 64 rows of each part fit, in a workspace of `turned_workspace_bytes`.
inline int64_t places_of_turned(const RingLaunch& launch) {
  return 2 * int64_t(launch.blocks) * RingKernelTraits<RingSizes{.head_dim = 128, .row_tiles = 4}>::kRows;
}

/// Returns the bytes of workspace that the versions need.
inline int64_t turned_workspace_bytes(const Spec& spec) {
  return kArrivalBytes +
         places_of_turned(ring_launch(spec, false)) * (spec.head_dim + 1) * int64_t(sizeof(float));
}

/// A version that sets how many parts the last arriving block merges.
template <typename Traits>
concept LimitsParts = requires(const Traits& traits) {
  traits.kPartsForLast;
};

/// Launches another version of step 4, for a shape with up to 16 rows.
template <typename T, typename Traits>
void run_turned(const Spec& spec, const Tensors& t, device::Stream stream) {
  RingLaunch launch = ring_launch(spec, false);
  if constexpr (LimitsParts<Traits>) launch.plan.parts_of_last = Traits::kPartsForLast;
  auto* o = reinterpret_cast<float*>(static_cast<unsigned char*>(t.workspace) + kArrivalBytes);
  const Workspace workspace = {
      {o, o + places_of_turned(launch) * spec.head_dim}, static_cast<unsigned*>(t.workspace), {}};
  run_ring<T, Traits>(spec, problem_of(spec, t, spec.heads / spec.kv_heads), workspace, t, stream, launch,
                      launch.plan);
}

}  // namespace flashbook::decoding
