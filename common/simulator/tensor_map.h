/// \file
/// The simulator's CUtensorMap: as large, and as opaque to kernels, as CUDA's.
#pragma once
#include <cstdint>

namespace flashbook::sim {

/// The first word of a tensor map. A GPU reads a map in place: from a parameter that is `__grid_constant__`,
/// or from device memory. A thread's own copy is in local memory, which TMA cannot read.
enum class MapMark : uint32_t {
  none = 0,
  map = 0x544d4150,  ///< a map that TMA can read
  argument,  ///< in an argument for a `__grid_constant__` parameter: its first copy in a kernel is the
             ///< parameter
  local,     ///< a copy in a thread's local memory
  written,   ///< a copy that a kernel has written to memory
};

/// Returns the mark of a copy at `place`. (g++ would warn about a const pointer to uninitialised memory.)
MapMark mark_of_copy(MapMark mark, void* place);

}  // namespace flashbook::sim

/// The properties of a tensor that TMA needs. device::tensor_map fills them in.
struct CUtensorMap {
  /// The mark of a map, which copying the map may change.
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
  uint8_t swizzle_bytes;   ///< span of the swizzle; 16 if there is none
  unsigned char* base;
  uint64_t size[5];    ///< per dimension, innermost first, in elements
  uint64_t stride[5];  ///< per dimension, in bytes
  uint16_t box[5];     ///< size of the part that one copy moves, in elements
  unsigned char unused[22];
};
static_assert(sizeof(CUtensorMap) == 128, "as CUDA's");
