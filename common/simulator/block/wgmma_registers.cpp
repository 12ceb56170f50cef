#include "common/simulator/block/wgmma_registers.h"

#include <cstring>

#include "common/simulator/element_value.h"

namespace flashbook::sim {
namespace {

/// Returns the row of a thread's first register; its second row is 8 below.
int row_of(int thread) { return thread / 32 * 16 + thread % 32 / 4; }

/// Calls `move` for every pair of adjacent floats in a row, with its offset in values [64][n]. Float 4j + i
/// of a thread is in column 8j + 2 * (thread % 4) + i % 2 of its first row or, for i >= 2, its second row.
template <typename Move>
void for_each_pair(const std::array<float*, 128>& registers, int n, const Move& move) {
  for (int thread = 0; thread < 128; ++thread) {
    const int row = row_of(thread), column = thread % 4 * 2;
    float* mine = registers[std::size_t(thread)];
    for (int j = 0; j < n / 8; ++j)
      for (int half = 0; half < 2; ++half)
        move(mine + 4 * j + 2 * half, (row + 8 * half) * n + 8 * j + column);
  }
}

/// Register r of a thread holds 4 bytes of its first (r even) or second (r odd) row, starting at byte 4 *
/// (thread % 4) of the row's first half or, for r >= 2, its second half.
template <DType kType>
void read(const uint32_t* registers, float* values) {
  constexpr int kElements = 4 / sizeof(ElementBits<kType>), kInner = 8 * kElements;
  for (int thread = 0; thread < 128; ++thread) {
    for (int r = 0; r < kFragmentRegisters; ++r) {
      ElementBits<kType> elements[kElements];
      std::memcpy(elements, registers + thread * kFragmentRegisters + r, sizeof elements);
      const int row = row_of(thread) + r % 2 * 8, column = r / 2 * kInner / 2 + thread % 4 * kElements;
      for (int i = 0; i < kElements; ++i) values[row * kInner + column + i] = value_of<kType>(elements[i]);
    }
  }
}

}  // namespace

void gather_accumulator(const std::array<float*, 128>& registers, int n, float* values) {
  for_each_pair(registers, n, [values](const float* pair, int at) { std::memcpy(values + at, pair, 8); });
}

void scatter_accumulator(const std::array<float*, 128>& registers, int n, const float* values) {
  for_each_pair(registers, n, [values](float* pair, int at) { std::memcpy(pair, values + at, 8); });
}

void read_fragment(DType type, const std::array<uint32_t, 128 * kFragmentRegisters>& registers,
                   float* values) {
  if (type == DType::f16) return read<DType::f16>(registers.data(), values);
  if (type == DType::bf16) return read<DType::bf16>(registers.data(), values);
  read<DType::e4m3>(registers.data(), values);
}

}  // namespace flashbook::sim
