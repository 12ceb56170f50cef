/// \file
/// A matrix in shared memory, described by a wgmma descriptor. Internal to the simulator.
#pragma once
#include <cstdint>

#include "common/simulator/location.h"
#include "common/simulator/wgmma.h"

namespace flashbook::sim {

/// The block's dynamic shared memory, whose first byte has address 0 in descriptors.
struct SharedBytes {
  const unsigned char* data = nullptr;
  uint32_t size = 0;
};

/// An operand of wgmma: `rows` rows (m for a, n for b), each with 32 bytes along k.
///
/// It is read in 16-byte pieces. A K-major operand has `rows` lines of 2 pieces along k; an MN-major one has
/// 16 lines, one per k, of rows / 8 pieces each.
class SharedMatrix {
 public:
  SharedMatrix(uint64_t descriptor, bool mn_major, int rows);

  int lines() const { return mn_major_ ? 16 : rows_; }
  int pieces() const { return mn_major_ ? rows_ / 8 : 2; }
  bool mn_major() const { return mn_major_; }

  /// Returns the span of the swizzle in bytes; 16 if there is none.
  uint32_t swizzle_bytes() const { return line_bytes_; }
  uint32_t start() const { return start_; }
  /// Returns the offset of a piece in shared memory.
  uint32_t address(int line, int piece) const;

  /// Throws Error if the descriptor is malformed, has a layout that the hardware does not support, or reaches
  /// beyond shared memory. `which` is "A" or "B".
  void require_legal(const char* which, SharedBytes shared, Location where) const;

 private:
  uint64_t descriptor_;
  bool mn_major_;
  int rows_;
  uint32_t start_, leading_, stride_;
  uint32_t line_bytes_;  ///< bytes per line of an atom; 16 without swizzle
};

/// Writes the values of `matrix` as [rows][inner], or as [inner][rows] if `transposed`, where inner is 16, or
/// 32 for e4m3. Only this function reads shared memory for wgmma.
void read_matrix(const SharedMatrix& matrix, DType type, bool transposed, SharedBytes shared, float* values);

}  // namespace flashbook::sim
