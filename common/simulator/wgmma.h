/// \file
/// wgmma: the four warps of a warpgroup multiply matrices asynchronously.
#pragma once
#include <cstdint>
#include <type_traits>

#include "common/numeric/float_formats.h"
#include "common/simulator/location.h"

namespace flashbook::sim {

/// The kind of an instruction: a is 64xK and b is KxN, where K elements occupy 32 bytes.
struct WgmmaKind {
  DType type;
  int n;
  bool a_in_registers, a_is_mn_major, b_is_mn_major;
  friend constexpr bool operator==(const WgmmaKind&, const WgmmaKind&) = default;
};

template <typename T>
constexpr DType wgmma_type = std::is_same_v<T, f16>    ? DType::f16
                             : std::is_same_v<T, bf16> ? DType::bf16
                                                       : DType::e4m3;

/// Returns the address of a tile in the block's shared memory, as stored in a descriptor. Throws Error unless
/// the tile and the distances are multiples of 16 and the tile is in dynamic shared memory.
uint32_t wgmma_tile_address(const void* tile, uint32_t leading_bytes, uint32_t stride_bytes, Location where);

/// Issues a product. d has kind.n / 2 floats; a_registers has 4 registers, or is null if `a` is a descriptor.
void wgmma(const WgmmaKind& kind, float* d, const uint32_t* a_registers, uint64_t a, uint64_t b,
           bool accumulate, Location where);

/// Orders the threads' earlier register accesses before the products that follow.
void wgmma_fence(Location where);

/// Closes a group: the products since the last commit.
void wgmma_commit(Location where);

/// Waits until all groups are complete, except for the latest `groups_in_flight`.
void wgmma_wait(int groups_in_flight, Location where);

}  // namespace flashbook::sim
