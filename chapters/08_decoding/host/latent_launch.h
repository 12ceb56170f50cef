/// \file
/// The launches of latent attention: how blocks share keys, and their workspace. For steps 7, 11 and 12.
#pragma once
#include "chapters/08_decoding/host/launch.cuh"
#include "chapters/08_decoding/step7_latent_merge.cuh"

namespace flashbook::decoding {

/// The plan of a launch.
struct LatentLaunch {
  int blocks;     ///< blocks that share the keys
  int row_tiles;  ///< 64-row tiles; each has `blocks` blocks
  // If all sequences are as long as the shape says:
  int units;  ///< units in total
  int most;   ///< maximum number of units per block
  Plan plan;
};

// The plan divides tiles of keys among `blocks` blocks, independently of tiles of rows: each tile of rows has
// its own `blocks` blocks, which read the same keys at the same time. Each block occupies a multiprocessor,
// so there are at most `places` for a tile of rows. As in step 6 there are fewer if each block then has one
// part, or whole items that need not be cut, and nine of ten places are busy. `even`: all sequences are as
// long as the shape says.
inline LatentLaunch latent_launch(const Sizes& spec, bool even = false,
                                  int keys = LatentKernelTraits::kKeys) {
  const int64_t rows = int64_t(spec.heads / spec.kv_heads) * spec.seqlen_q;
  const int row_tiles = int(ceil_div(rows, LatentKernelTraits::kRows));
  const int64_t items = int64_t(spec.batch) * spec.kv_heads;
  const int64_t key_tiles = ceil_div(int64_t(spec.seqlen_k), keys);
  const int64_t places = std::max(device::multiprocessors() / row_tiles, 1);
  const int64_t parts = std::clamp<int64_t>(places / items, 1, key_tiles);
  const int64_t items_of_block = ceil_div(items, places);  // if no item is cut
  int64_t blocks = places;
  if (10 * items * parts >= 9 * places * items_of_block) blocks = ceil_div(items * parts, items_of_block);
  // If all sequences are as long as the shape says: no more blocks than the longest share needs. With 2048
  // tiles, 66 blocks have 31 or 32 each. 64 blocks have 32, which takes as long and makes fewer parts.
  const int64_t units = items * key_tiles;
  blocks = std::min(blocks, units);
  const int64_t most = ceil_div(units, blocks);
  if (even) blocks = ceil_div(units, most);
  return {.blocks = int(blocks),
          .row_tiles = row_tiles,
          .units = int(units),
          .most = int(most),
          .plan = {.parts = 1,
                   .equal_work = true,
                   .row_tiles = 1,
                   .items_of_sequence = spec.kv_heads,
                   .team = 1,
                   .first_key = 0}};
}

/// Places of parts, see LatentParts.
inline int64_t places_of(const LatentLaunch& launch) {
  return launch.blocks == 1 ? 0 : 2 * int64_t(launch.blocks) * launch.row_tiles;
}

/// Elements per place in LatentParts: of `o`, and of `rows`.
constexpr int64_t kPiecesPerPart = LatentParts::kPieces * LatentKernelTraits::kConsumers;
constexpr int64_t kRowsPerPart = 2 * LatentKernelTraits::kRows;

/// Returns the workspace of a launch: counters, then the values of all parts, then their rows' data.
inline int64_t workspace_of(const LatentLaunch& launch) {
  const int64_t places = places_of(launch);
  if (places == 0) return 0;
  return kArrivalBytes +
         places * (kPiecesPerPart * int64_t(sizeof(uint4)) + kRowsPerPart * int64_t(sizeof(PartRow)));
}

inline LatentParts parts_in(void* workspace, const LatentLaunch& launch) {
  LatentParts parts = {.arrivals = nullptr, .o = nullptr, .rows = nullptr, .blocks = launch.blocks};
  if (launch.blocks == 1) return parts;
  parts.arrivals = static_cast<unsigned*>(workspace);
  parts.o = reinterpret_cast<uint4*>(static_cast<unsigned char*>(workspace) + kArrivalBytes);
  parts.rows = reinterpret_cast<PartRow*>(parts.o + places_of(launch) * kPiecesPerPart);
  return parts;
}

/// Returns the plan if all sequences are as long as the shape says.
inline EvenPlan even_plan(const LatentLaunch& launch, const Sizes& sizes) {
  const int per_item = launch.units / (sizes.batch * sizes.kv_heads);
  return {launch.plan, launch.units, launch.most, per_item, per_item * sizes.kv_heads};
}

/// Returns how to start the blocks. Those that share items wait for one another, so they must all run at the
/// same time. With one block per tile of rows nothing is shared, and there may be more tiles of rows than run
/// at the same time.
inline device::Start start_of(const LatentLaunch& launch) {
  return launch.blocks == 1 ? device::Start::plain : device::Start::cooperative;
}

}  // namespace flashbook::decoding
