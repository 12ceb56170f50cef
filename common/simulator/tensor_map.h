/// \file
/// The simulator's CUtensorMap: as large and as opaque to kernels as CUDA's.
#pragma once
#include <cstdint>

/// What TMA knows about a tensor. device::tensor_map fills it in.
struct CUtensorMap {
  uint32_t mark;           ///< kTensorMapMark: this is a map
  uint16_t element_bytes;  ///< 1, 2 or 4
  uint8_t rank;            ///< 1 to 5
  uint8_t swizzle_bytes;   ///< of its span; 16: none
  unsigned char* base;
  uint64_t size[5];    ///< of each dimension, innermost first, in elements
  uint64_t stride[5];  ///< of each dimension, in bytes
  uint16_t box[5];     ///< what one copy moves, in elements
  unsigned char unused[22];
};
static_assert(sizeof(CUtensorMap) == 128, "as CUDA's");

namespace flashbook::sim {

constexpr uint32_t kTensorMapMark = 0x544d4150;

}  // namespace flashbook::sim
