#include "common/simulator/block/shared_matrix.h"

#include <cstring>
#include <string>

#include "common/simulator/block/box.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/element_value.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

constexpr uint32_t kPieceBytes = 16, kGroupLines = 8;
constexpr uint32_t kAddressMask = 0x3ffff;  // descriptors address 256 KB
/// The unused bits of a descriptor, and the base offset in bits 49 to 51.
constexpr uint64_t kReservedBits = 0x3ff1'c000'c000'c000, kBaseOffsetBits = uint64_t(7) << 49;

[[noreturn]] void illegal(const char* which, Location where, const std::string& problem) {
  throw Error(describe_call("wgmma", where) + ": the descriptor of " + which + " " + problem);
}

/// Returns a 14-bit field of a descriptor, converted to bytes.
uint32_t field(uint64_t descriptor, int bit) { return uint32_t(descriptor >> bit & 0x3fff) << 4; }

/// The line size in bytes, indexed by the descriptor's swizzle code.
constexpr uint32_t kLineBytes[] = {16, 128, 64, 32};

std::string bytes(uint32_t count) { return std::to_string(count) + " bytes"; }

}  // namespace

SharedMatrix::SharedMatrix(uint64_t descriptor, bool mn_major, int rows)
    : descriptor_(descriptor),
      mn_major_(mn_major),
      rows_(rows),
      start_(field(descriptor, 0)),
      leading_(field(descriptor, 16)),
      stride_(field(descriptor, 32)),
      line_bytes_(kLineBytes[descriptor >> 62]) {}

uint32_t SharedMatrix::address(int line, int piece) const {
  const uint32_t group = uint32_t(line) / kGroupLines, along = uint32_t(piece) * kPieceBytes;
  // Without a swizzle, the two strides of an MN-major matrix are exchanged.
  const bool exchanged = mn_major_ && line_bytes_ == kPieceBytes;
  const uint32_t linear = start_ + along / line_bytes_ * (exchanged ? stride_ : leading_) +
                          along % line_bytes_ + group * (exchanged ? leading_ : stride_) +
                          uint32_t(line) % kGroupLines * line_bytes_;
  // The swizzle uses the bits of the address, not those of the offset within the tile.
  return (linear ^ (linear >> 3 & (line_bytes_ - kPieceBytes))) & kAddressMask;
}

void SharedMatrix::require_legal(const char* which, SharedBytes shared, Location where) const {
  if (descriptor_ & kReservedBits)
    illegal(which, where, "has reserved bits set: build it with wgmma_descriptor");
  if (descriptor_ & kBaseOffsetBits)
    illegal(which, where, "has a base offset: align the tile to " + bytes(line_bytes_ * 8) + " instead");
  if (line_bytes_ > kPieceBytes) {
    const uint32_t atom = line_bytes_ * kGroupLines, in_atom = start_ % atom, in_line = start_ % line_bytes_;
    const std::string swizzle = name_of_swizzle(line_bytes_);
    if (in_atom >= line_bytes_)
      illegal(which, where,
              "begins in line " + std::to_string(in_atom / line_bytes_) + " of an atom of " + swizzle +
                  ": align the tile to " + bytes(atom));
    const uint32_t length = uint32_t(pieces()) * kPieceBytes;
    if (in_line > 0 && in_line + length > line_bytes_)
      illegal(which, where,
              "begins " + bytes(in_line) + " into a line of " + swizzle + " and needs " + bytes(length) +
                  ", which goes past its end: continue in the next atom");
    const bool more_groups = lines() > int(kGroupLines), more_atoms = length > line_bytes_;
    if ((more_groups && stride_ % atom) || (more_atoms && leading_ % atom))
      illegal(which, where,
              "has leading_bytes " + std::to_string(leading_) + " and stride_bytes " +
                  std::to_string(stride_) + ": atoms of " + swizzle + " are multiples of " + bytes(atom) +
                  " apart");
  }
  for (int line = 0; line < lines(); ++line) {
    for (int piece = 0; piece < pieces(); ++piece) {
      const uint32_t at = address(line, piece);
      if (at + kPieceBytes <= shared.size) continue;
      const int row = mn_major_ ? piece * 8 : line, k = mn_major_ ? line : piece;
      illegal(which, where,
              "leaves shared memory at row " + std::to_string(row) +
                  (mn_major_ ? ", k " + std::to_string(k)
                   : k == 0  ? ""
                             : ", second half") +
                  ": " + std::to_string(at) + " of " + bytes(shared.size) + "; it begins at " +
                  std::to_string(start_) + " with leading_bytes " + std::to_string(leading_) +
                  ", stride_bytes " + std::to_string(stride_));
    }
  }
}

namespace {

template <DType kType>
void read(const SharedMatrix& matrix, bool transposed, SharedBytes shared, float* values) {
  constexpr int kElements = kPieceBytes / sizeof(ElementBits<kType>);
  constexpr int kInner = 2 * kElements;
  const int rows = matrix.mn_major() ? matrix.pieces() * kElements : matrix.lines();
  // The distances between the elements of a piece and between lines.
  const bool along_k = !matrix.mn_major();
  const int row_step = transposed ? 1 : kInner, k_step = transposed ? rows : 1;
  const int step = along_k ? k_step : row_step, line_step = along_k ? row_step : k_step;
  for (int line = 0; line < matrix.lines(); ++line) {
    for (int piece = 0; piece < matrix.pieces(); ++piece) {
      ElementBits<kType> elements[kElements];
      std::memcpy(elements, shared.data + matrix.address(line, piece), kPieceBytes);
      float* to = values + line * line_step + piece * kElements * step;
      for (int i = 0; i < kElements; ++i) to[i * step] = value_of<kType>(elements[i]);
    }
  }
}

}  // namespace

void read_matrix(const SharedMatrix& matrix, DType type, bool transposed, SharedBytes shared, float* values) {
  if (type == DType::f16) return read<DType::f16>(matrix, transposed, shared, values);
  if (type == DType::bf16) return read<DType::bf16>(matrix, transposed, shared, values);
  read<DType::e4m3>(matrix, transposed, shared, values);
}

}  // namespace flashbook::sim
