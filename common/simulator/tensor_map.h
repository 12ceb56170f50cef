/// \file
/// The simulator's CUtensorMap: as large and as opaque to kernels as CUDA's.
#pragma once
#include <cstdint>

namespace flashbook::sim {

/// What a tensor map's first word says of it. A GPU reads a map where it lies: in a parameter that is
/// `__grid_constant__`, or in device memory. A copy that a thread makes lies in its local memory, out of
/// reach.
enum class MapMark : uint32_t {
  none = 0,
  map = 0x544d4150,  ///< TMA can read it
  argument,  ///< of a parameter that is `__grid_constant__`: its first copy in a kernel is the parameter
  local,     ///< a copy that a thread has made
  written,   ///< one that a kernel has written to memory
};

/// The mark of a copy, which lies there. (g++ warns of a const place, which holds nothing yet.)
MapMark mark_of_copy(MapMark mark, void* place);

}  // namespace flashbook::sim

/// What TMA knows about a tensor. device::tensor_map fills it in.
struct CUtensorMap {
  /// The mark of a map: copies of it may have another.
  class Mark {
   public:
    Mark() = default;
    Mark(flashbook::sim::MapMark mark) : mark_(mark) {}
    Mark(const Mark& other) : mark_(flashbook::sim::mark_of_copy(other.mark_, this)) {}
    Mark& operator=(const Mark& other) {
      mark_ = flashbook::sim::mark_of_copy(other.mark_, this);
      return *this;
    }
    operator flashbook::sim::MapMark() const { return mark_; }

   private:
    flashbook::sim::MapMark mark_ = flashbook::sim::MapMark::none;
  };

  Mark mark;
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
